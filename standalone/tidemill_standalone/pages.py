"""One description of one HTTP port that two services answer."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any

from tidemill_host.system import OF_EVERY_PROCESS
from tidemill_meta.doors import page as meta_page

REFERENCE = re.compile(r'"#/components/schemas/(\w+)"')
PREFIX = "Meta"
"""Of the names of meta's schemas: some of them are the broker's, too."""


def merged(page: dict[str, Any], brokers_own: Collection[tuple[str, str]]) -> dict[str, Any]:
    """The broker's page, with those of meta's paths that meta answers."""
    written = REFERENCE.sub(rf'"#/components/schemas/{PREFIX}\1"', json.dumps(meta_page.page()))
    other: dict[str, Any] = json.loads(written)
    paths: dict[str, Any] = {path: dict(item) for path, item in page["paths"].items()}
    for path, item in other["paths"].items():
        if path in paths and (path in OF_EVERY_PROCESS or path.count("/") == 1):
            continue  # the process's health, numbers and this page
        mine = {
            method: {**operation, "operationId": f"meta_{operation['operationId']}"}
            for method, operation in item.items()
            if (method.upper(), path) not in brokers_own
        }
        if mine:
            paths[path] = {**paths.get(path, {}), **mine}
    schemas = {f"{PREFIX}{name}": schema for name, schema in other["components"]["schemas"].items()}
    routes = dict(paths["/v1/routes"]["get"])
    routes["parameters"] = other["paths"]["/v1/routes"]["get"]["parameters"]
    content = {"application/json": {"schema": {"anyOf": [
        {"$ref": "#/components/schemas/Routes"}, {"$ref": "#/components/schemas/MetaRoutes"},
    ]}}}  # fmt: skip
    found = {"description": "where brokers are, and the subjects that were named", "content": content}
    routes["responses"] = {**other["paths"]["/v1/routes"]["get"]["responses"], "200": found}
    paths["/v1/routes"] = {**paths["/v1/routes"], "get": routes}
    components = {**page["components"], "schemas": {**page["components"]["schemas"], **schemas}}
    return {**page, "paths": paths, "components": components}
