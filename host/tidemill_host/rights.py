"""``/v1/access/own``: who a service takes somebody for, and what that one was granted; for whoever asks about itself.

A page can offer then what is granted and nothing else, and a person sees why something is refused. It decides nothing:
each path judges for itself.
"""

from __future__ import annotations

from typing import Any

from tidemill_host.openapi import Part, reading, record
from tidemill_wire.access import Identity, Operation

OWN_RIGHTS = "/v1/access/own"


def rights_of(identity: Identity) -> dict[str, Any]:
    """As it is told."""
    granted = [] if identity.all else [one.to_map() for one in identity.permissions]
    return {"who": identity.who, "everything": identity.all, "permissions": granted}


def rights_paths() -> dict[str, Part]:
    """Its part of the OpenAPI page."""
    names: Part = {"type": "array", "items": {"type": "string"}}
    permission = record(
        {
            "operations": {"type": "array", "items": {"enum": [one.value for one in Operation]}},
            "subjects": {**names, "description": "names, the beginning of names and a `*`, or `*` for all"},
            "groups": {**names, "description": "as which consumer groups; any, when it is not said"},
        },
        ("groups",),
    )
    said = record(
        {
            "who": {"type": "string", "minLength": 1, "description": "nobody, where nothing is locked"},
            "everything": {
                "type": "boolean",
                "description": "nothing is locked, or it is the cluster itself",
            },
            "permissions": {"type": "array", "items": permission},
        }
    )
    example = {
        "who": "token:shop", "everything": False,
        "permissions": [{"operations": ["Send"], "subjects": ["order.*"]}],
    }  # fmt: skip
    return {OWN_RIGHTS: reading("own_rights", "Who asks, and what was granted to that one", said, example)}
