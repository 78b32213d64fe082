"""The control plane of a standalone queue: routes, subjects, groups, health, and the page that describes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidemill_broker.doors import queries_page
from tidemill_broker.doors.service import Service


def routes_of(service: Service, port: int) -> dict[str, Any]:
    """Where clients find the brokers. Host null is the host that the client used for asking."""
    name = service.broker.settings.name
    broker = {"group": name.partition("-")[0], "name": name, "host": None, "port": port, "state": "RW"}
    return {"version": 1, "brokers": [broker]}


def values_of(service: Service, routes: Callable[[], dict[str, Any]]) -> dict[str, Callable[[], Any]]:
    """Paths and what they answer."""
    values: dict[str, Callable[[], Any]] = {
        "/healthz": lambda: {"status": "ok"},
        "/readyz": lambda: {"status": "ready"},
        "/v1/routes": routes,
        "/v1/subjects": service.subjects,
        "/v1/groups": service.groups,
    }
    values["/openapi.json"] = lambda: _openapi(list(values))
    return values


def _openapi(paths: list[str]) -> dict[str, Any]:
    answer: dict[str, Any] = {"200": {"description": "JSON", "content": {"application/json": {"schema": {}}}}}
    operations: dict[str, Any] = {
        path: {"operationId": path.strip("/").replace("/", "_"), "responses": answer} for path in paths
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "tidemill control plane", "version": "1"},
        "paths": {path: {"get": operation} for path, operation in operations.items()} | queries_page.paths(),
        "components": {"schemas": queries_page.schemas()},
    }
