"""``python -m tidemill_operator.crds FOLDER PAGE``: the definitions as files, and the page that documents them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import yaml

from tidemill_operator.crds.definitions import definitions
from tidemill_operator.crds.reference import reference

HEAD = "# Made by `make crds` of the declarations in wire/: change those.\n"


def as_text(definition: dict[str, Any]) -> str:
    return HEAD + yaml.dump(definition, Dumper=_Plain, sort_keys=False, width=110, allow_unicode=True)


class _Plain(yaml.SafeDumper):
    """Without the anchors that say twice the same object: not all that reads manifests knows them."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 2:
        sys.stderr.write(
            "python -m tidemill_operator.crds FOLDER PAGE: name where the definitions and their page go\n"
        )
        return 2
    folder, page = arguments
    os.makedirs(folder, exist_ok=True)
    for name, definition in definitions().items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(as_text(definition))
    with open(page, "w", encoding="utf-8") as file:
        file.write(reference())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
