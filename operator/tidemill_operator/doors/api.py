"""The API server, over HTTP and JSON: who we are there, and one request at a time.

kopf finds the credentials and watches with them; these requests are made without a client library, for a manifest is a
plain mapping here as there, and the official client alone would weigh more than all of the operator.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, cast

import aiohttp
import kopf

from tidemill_operator.doors.metrics import Metrics
from tidemill_operator.kinds import Kind
from tidemill_operator.refusals import of_api
from tidemill_operator.steps import Manifest

TIMEOUT_S = 30.0
CONNECT_S = 10.0
RELOGIN_S = 240.0
"""A pod's token is made anew on the disk well before it ends; it is read again this often."""
APPLY = "application/apply-patch+yaml"
PATCH = "application/json-patch+json"
JSON = "application/json"
METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
PAGE = "500"
UNCOUNTED = frozenset({"GET", "PUT"})
"""Not among the requests of which only so many are under way: reading, and the lease, which must not wait."""


class NoAccess(Exception):
    """Nothing says which API server there is, or who we are."""


def log_in() -> kopf.ConnectionInfo:
    """Where the API server is, and who we are: what KUBECONFIG names, else the pod's own account, else ~/.kube."""
    settings = kopf.OperatorSettings()
    ways = [kopf.login_with_service_account, kopf.login_with_kubeconfig]
    if os.environ.get("KUBECONFIG"):
        ways.reverse()
    for way in ways:
        found = way(settings=settings)
        if found is not None:
            return found
    raise NoAccess(
        "there is no Kubernetes to speak with: run in a pod with a service account, or set KUBECONFIG"
    )


class Api:
    """Requests to the API server. What it refuses is a ``Failure``."""

    def __init__(self, access: kopf.ConnectionInfo, metrics: Metrics, writes: int) -> None:
        self._access = access
        self._metrics = metrics
        self._writing = asyncio.Semaphore(writes)
        self._session: aiohttp.ClientSession | None = None
        self._logged_in_s = 0.0

    async def open(self) -> None:
        connector = aiohttp.TCPConnector(ssl=self._access.as_ssl_context(), limit=0)
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S, sock_connect=CONNECT_S)
        self._session = aiohttp.ClientSession(
            connector=connector, timeout=timeout, auth=self._access.as_aiohttp_basic_auth()
        )
        self._logged_in_s = asyncio.get_running_loop().time()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    # -- reading -----------------------------------------------------------------------------------------------

    async def get(self, path: str) -> dict[str, Any]:
        return await self._request("GET", path)

    async def serves(self, kinds: Iterable[Kind]) -> frozenset[str]:
        """Those of the kinds that the API server has, by their full names."""
        found: set[str] = set()
        for version in {one.api_version: one for one in kinds}.values():
            listed = await self._optional(f"/api{'s' if version.group else ''}/{version.api_version}")
            found |= {f"{version.api_version}/{one['kind']}" for one in listed.get("resources", ())}
        return frozenset(one.full for one in kinds if one.full in found)

    async def _optional(self, path: str) -> dict[str, Any]:
        try:
            return await self.get(path)
        except Refused as refused:
            if refused.status != 404:
                raise
            return {}

    async def listed(self, kind: Kind, namespaces: Iterable[str], accept: str = JSON) -> list[dict[str, Any]]:
        """All objects of a kind, asked for piece by piece."""
        found: list[dict[str, Any]] = []
        for namespace in namespaces or ("",):
            token = ""
            while True:
                query = {"limit": PAGE, **({"continue": token} if token else {})}
                answer = await self._request("GET", kind.path(namespace), query=query, accept=accept)
                found += answer["items"]
                token = answer["metadata"].get("continue", "")
                if not token:
                    break
        return found

    async def names(self, kind: Kind, namespaces: Iterable[str]) -> set[tuple[str, str, str]]:
        """Namespace, name and uid of all objects of a kind: little, however many there are."""
        rows = [one["metadata"] for one in await self.listed(kind, namespaces, METADATA)]
        return {(one.get("namespace", ""), one["name"], one["uid"]) for one in rows}

    # -- writing -----------------------------------------------------------------------------------------------

    async def apply(self, path: str, manifest: Manifest, manager: str) -> dict[str, Any]:
        """Server-side apply: the fields that are said are ours from now on."""
        query = {"fieldManager": manager, "force": "true"}
        return await self._request("PATCH", path, body=manifest, content=APPLY, query=query)

    async def patch(self, path: str, operations: list[Mapping[str, Any]]) -> dict[str, Any]:
        return await self._request("PATCH", path, body=operations, content=PATCH)

    async def post(self, path: str, body: Manifest) -> dict[str, Any]:
        return await self._request("POST", path, body=body)

    async def put(self, path: str, body: Manifest) -> dict[str, Any]:
        """For the lease alone: what is put is whole, and nobody else's."""
        return await self._request("PUT", path, body=body)

    async def delete(self, path: str, options: Mapping[str, Any]) -> dict[str, Any]:
        return await self._request("DELETE", path, body=options)

    # -- requests ----------------------------------------------------------------------------------------------

    async def _request(
        self,
        verb: str,
        path: str,
        *,
        body: object = None,
        content: str = JSON,
        query: Mapping[str, str] | None = None,
        accept: str = JSON,
    ) -> dict[str, Any]:
        headers = {"Accept": accept, **self._authorisation()}
        data = None
        if body is not None:
            headers["Content-Type"], data = content, json.dumps(body)
        if verb in UNCOUNTED:
            status, answer, retry_after_s = await self._send(verb, path, headers, data, query or {})
        else:
            async with self._writing:
                status, answer, retry_after_s = await self._send(verb, path, headers, data, query or {})
        self._metrics.api_requests.labels(verb.lower(), str(status)).inc()
        if status == 401:
            self._logged_in_s = 0.0
        if not 200 <= status < 300:
            sentence = str(answer.get("message") or f"the API server answers {status}")
            raise Refused(verb, path, status, sentence, retry_after_s)
        return answer

    async def _send(
        self, verb: str, path: str, headers: Mapping[str, str], data: str | None, query: Mapping[str, str]
    ) -> tuple[int, dict[str, Any], float]:
        """Status (0: not heard), answer, and the seconds to wait that it names."""
        assert self._session is not None
        url = self._access.server.rstrip("/") + path
        try:
            async with self._session.request(verb, url, headers=headers, data=data, params=query) as response:
                said = await response.read()
                pause = response.headers.get("Retry-After", "0")
                return response.status, parse_answer(said), float(pause) if pause.isdigit() else 0.0
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return (
                0,
                {"message": f"the API server does not answer: {str(error) or type(error).__name__}"},
                0.0,
            )

    def _authorisation(self) -> dict[str, str]:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._logged_in_s > RELOGIN_S:
            self._access, self._logged_in_s = log_in(), now_s
        return self._access.as_http_headers()


class Refused(Exception):
    """The API server's no, before it is known what it was for; ``failure`` says what it means."""

    def __init__(self, verb: str, path: str, status: int, sentence: str, retry_after_s: float) -> None:
        super().__init__(f"{verb} {path}: {sentence}")
        self.status = status
        self.failure = of_api(status, sentence, retry_after_ms=round(retry_after_s * 1000))


def parse_answer(said: bytes) -> dict[str, Any]:
    """What an answer says; of one that is no object, its beginning."""
    try:
        answer: object = json.loads(said) if said else {}
    except ValueError:
        answer = None
    if isinstance(answer, dict):
        return cast("dict[str, Any]", answer)
    return {"message": said[:200].decode(errors="replace")}
