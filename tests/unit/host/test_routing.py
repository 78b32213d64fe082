"""Paths with variables: each segment as it came, decoded once, and no path twice."""

from __future__ import annotations

import pytest
from aiohttp import web

from tidemill_host.routing import Route, Router, Variables


async def things(request: web.BaseRequest, variables: Variables) -> web.StreamResponse:
    return web.Response()


async def parts(request: web.BaseRequest, variables: Variables) -> web.StreamResponse:
    return web.Response()


ROUTER = Router(
    [
        Route("POST", "/v1/things/{thing}/parts", parts),
        Route("GET", "/v1/things/{thing}/parts", things),
        Route("GET", "/v1/things/{thing}/{part}", things),
        Route("GET", "/v1/things/special/parts", parts),
    ]
)


def test_methods_of_a_path_are_found_together() -> None:
    found = ROUTER.find("/v1/things/a/parts")

    assert found is not None
    assert found[0] == {"POST": parts, "GET": things}
    assert found[1] == {"thing": "a"}


def test_segments_written_out_come_before_variables() -> None:
    found = ROUTER.find("/v1/things/special/parts")
    assert found is not None
    assert (found[0], found[1]) == ({"GET": parts}, {})


def test_variable_is_decoded_once_and_a_slash_in_it_is_no_border() -> None:
    found = ROUTER.find("/v1/things/a%2Fb%2520/x")
    assert found is not None
    assert found[1] == {"thing": "a/b%20", "part": "x"}


@pytest.mark.parametrize(
    "path", ["/v1/things/a", "/v1/things//parts", "/v1/things/a/parts/", "/v2/things/a/parts"]
)
def test_other_paths_are_not_found(path: str) -> None:
    assert ROUTER.find(path) is None
