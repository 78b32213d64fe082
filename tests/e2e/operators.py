"""The operator as a real process, and a proxy before the API server that counts, and refuses when it is told to."""

from __future__ import annotations

import asyncio
import atexit
import base64
import os
import re
import ssl
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import yaml
from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector, web

from e2e.services import RealService

READY = re.compile(rb"ready http://[^:]+:(\d+)\n")
METAS = Path(tempfile.gettempdir()) / f"tidemill-metas-{os.getpid()}"
"""Where the metas of tests are, which no Service leads to: what `metas_file` reads. It goes with this process."""
atexit.register(METAS.unlink, missing_ok=True)
QUICK = {
    "TIDEMILL_OPERATOR_RESYNC_MS": "3000",
    "TIDEMILL_OPERATOR_LAG_MS": "1000",
    "TIDEMILL_OPERATOR_GRACE_MS": "2000",
    "TIDEMILL_OPERATOR_LEASE_MS": "8000",
    "TIDEMILL_OPERATOR_RENEWAL_MS": "7000",
    "TIDEMILL_OPERATOR_RETRY_MS": "500",
    "TIDEMILL_OPERATOR_METAS_FILE": str(METAS),
}
"""What a person waits a minute for a test does not."""
WAIT_SECONDS = 60.0


def wait_until(what: str, holds: Callable[[], object], seconds: float = WAIT_SECONDS) -> float:
    """Poll; the name of what did not come is the failure. How many seconds it took."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() < began + seconds, f"{what}: not within {seconds:.0f} s"
        time.sleep(0.1)
    return time.monotonic() - began


class Operator(RealService):
    """One replica; started, stopped, killed and started again."""

    keeps_errors = True

    def __init__(
        self,
        folder: Path,
        kubeconfig: str,
        namespaces: Sequence[str],
        settings: Mapping[str, str] | None = None,
    ) -> None:
        home = {"KUBECONFIG": kubeconfig, "TIDEMILL_OPERATOR_LEASE_NAMESPACE": namespaces[0]}
        super().__init__(folder, {**QUICK, **home, **(settings or {})})
        self._arguments = [part for name in namespaces for part in ("--namespace", name)]
        self.port = 0

    def start(self) -> Self:
        """Until it serves its own port, which is before it has the lease."""
        command = [
            sys.executable,
            "-m",
            "tidemill_operator",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            *self._arguments,
        ]
        self.port = int(self.wait_ready(self.spawn(command), READY)[1])
        return self

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def is_ready(self) -> bool:
        return self.get("/readyz")[0] == 200

    def works(self) -> bool:
        """Whether it has the lease, and watches; one that has the lease is not ready before."""
        return self.number("tidemill_operator_leader") == 1 and self.is_ready()

    def wait_working(self, seconds: float = WAIT_SECONDS) -> Self:
        """Until it has the lease and watches."""
        wait_until("the operator works", self.works, seconds)
        return self

    def number(self, line: str) -> float:
        """The value of a line of the metrics page."""
        found = re.search(rf"^{re.escape(line)} (\S+)$", self.get("/metrics")[1], re.MULTILINE)
        return float(found[1]) if found else 0.0

    def memory_bytes(self, what: str = "VmHWM") -> int:
        found = re.search(
            rf"^{what}:\s+(\d+) kB$", Path(f"/proc/{self.pid}/status").read_text(), re.MULTILINE
        )
        assert found is not None
        return int(found[1]) * 1024

    def processor_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100


class Proxy:
    """Before the API server, without TLS, in a thread: what it is told to refuse it refuses; the rest goes through."""

    def __init__(self, kubeconfig: str, folder: Path) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()
        """By verb and path."""
        self.refusals: deque[tuple[str, int, Mapping[str, str]]] = deque()
        """What the next requests whose verb and path this pattern matches are answered with: status, and headers."""
        self.refused = 0
        self._folder = folder
        self._config = yaml.safe_load(Path(kubeconfig).read_text())
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._session: ClientSession | None = None
        self._runner: web.AppRunner | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        port = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(30)
        cluster = {"name": "proxy", "cluster": {"server": f"http://127.0.0.1:{port}"}}
        context = {"name": "proxy", "context": {"cluster": "proxy", "user": "proxy"}}
        said = {
            "apiVersion": "v1", "kind": "Config", "current-context": "proxy", "clusters": [cluster],
            "contexts": [context], "users": [{"name": "proxy", "user": {}}],
        }  # fmt: skip
        self.kubeconfig = str(self._folder / "proxy.kubeconfig")
        Path(self.kubeconfig).write_text(yaml.safe_dump(said))
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    def writes(self) -> dict[tuple[str, str], int]:
        """But for the lease, which is renewed for ever."""
        return {
            (verb, path): count
            for (verb, path), count in self.requests.items()
            if verb != "GET" and "/leases" not in path
        }

    async def _listen(self) -> int:
        cluster = self._config["clusters"][0]["cluster"]
        user = self._config["users"][0]["user"]
        trust = ssl.create_default_context(cadata=_pem(cluster, "certificate-authority"))
        certificate, key = self._folder / "proxy.crt", self._folder / "proxy.key"
        if "token" not in user:
            certificate.write_text(_pem(user, "client-certificate"))
            key.write_text(_pem(user, "client-key"))
            trust.load_cert_chain(certificate, key)
        headers = {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}
        self._server = cluster["server"]
        self._session = ClientSession(
            connector=TCPConnector(ssl=trust, limit=0), timeout=ClientTimeout(total=None), headers=headers,
            auto_decompress=False,
        )  # fmt: skip
        application = web.Application(client_max_size=64 << 20)
        application.router.add_route("*", "/{path:.*}", self._pass)
        self._runner = runner = web.AppRunner(application, access_log=None, shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return int(runner.addresses[0][1])

    async def _close(self) -> None:
        assert self._runner is not None
        assert self._session is not None
        await self._runner.cleanup()
        await self._session.close()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:  # watches, which would go on for ever
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        self.requests[request.method, request.path] += 1
        if self.refusals and re.search(self.refusals[0][0], f"{request.method} {request.path}"):
            _, status, headers = self.refusals.popleft()
            self.refused += 1
            return web.json_response(
                {"kind": "Status", "code": status, "message": "not now"}, status=status, headers=headers
            )
        kept = {
            name: value for name, value in request.headers.items() if name not in {"Host", "Content-Length"}
        }
        assert self._session is not None
        asked = self._session.request(
            request.method, self._server + request.raw_path, headers=kept, data=await request.read() or None
        )
        response: web.StreamResponse | None = None
        with suppress(ClientError, ConnectionError):
            async with asked as answer:
                response = web.StreamResponse(
                    status=answer.status, headers={"Content-Type": answer.content_type}
                )
                if "Content-Encoding" in answer.headers:
                    response.headers["Content-Encoding"] = answer.headers["Content-Encoding"]
                await response.prepare(request)
                async for piece in answer.content.iter_any():
                    await response.write(piece)
                await response.write_eof()
        return response or web.Response(status=502)


def _pem(block: Mapping[str, Any], name: str) -> str:
    if f"{name}-data" in block:
        return base64.b64decode(block[f"{name}-data"]).decode()
    return Path(block[name]).read_text()
