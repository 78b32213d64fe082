"""The documents hold together: links lead somewhere, and the README's first examples can be read by their languages.

That the examples also work is proved by ``tests/e2e``.
"""

from __future__ import annotations

import ast
import re
import subprocess
from urllib.parse import unquote

import pytest

from tidy import tree

FENCED = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE_CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"!?\[[^\]]*\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)|^\[[^\]]+\]:\s+(\S+)", re.MULTILINE)
ELSEWHERE = re.compile(r"^(?:[a-z][a-z0-9+.-]*:|//)")
DOCUMENTS = [path for path in tree.files() if path.endswith(".md")]


def anchors(text: str) -> set[str]:
    """The anchors GitHub makes of headings, and those written by hand."""
    found = set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text))
    for heading in re.findall(r"^#+ +(.+?) *#*$", FENCED.sub("", text), re.MULTILINE):
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        again = sum(1 for other in found if re.fullmatch(rf"{re.escape(anchor)}(-\d+)?", other))
        found.add(f"{anchor}-{again}" if again else anchor)
    return found


def broken_links(path: str, text: str) -> list[str]:
    broken: list[str] = []
    for match in LINK.finditer(INLINE_CODE.sub("", FENCED.sub("", text))):
        target = unquote(match[1] or match[2])
        if ELSEWHERE.match(target):
            continue
        name, _, anchor = target.partition("#")
        base = tree.ROOT if name.startswith("/") else (tree.ROOT / path).parent
        file = (base / name.lstrip("/")).resolve() if name else tree.ROOT / path
        if name and not file.exists():
            broken.append(f"{path}: {target}: there is no such file")
        elif (
            anchor and file.suffix == ".md" and anchor not in anchors(text if not name else file.read_text())
        ):
            broken.append(f"{path}: {target}: there is no such heading")
    return broken


def first_block(*languages: str) -> str:
    readme = dict(tree.texts()).get("README.md", "")
    for language, block in FENCED.findall(readme):
        if language in languages:
            return str(block)
    pytest.fail(
        f"README.md has no block of {' or '.join(languages)}: its first screen shows both", pytrace=False
    )


@pytest.mark.parametrize("path", DOCUMENTS)
def test_every_relative_link_leads_somewhere(path: str) -> None:
    assert broken_links(path, (tree.ROOT / path).read_text()) == []


def test_first_python_of_the_readme_compiles() -> None:
    block = first_block("python")

    compile(block, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)


def test_first_shell_of_the_readme_parses() -> None:
    block = first_block("shell", "sh", "bash", "console")
    commands = re.sub(r"^\$ ", "", block, flags=re.MULTILINE)

    parsed = subprocess.run(["sh", "-n"], input=commands, capture_output=True, text=True, check=False)

    assert (parsed.returncode, parsed.stderr) == (0, "")


def test_broken_links_are_seen() -> None:
    text = "# A b, c\n[a](nowhere.md) [b](LICENSE) [c](#a-b-c) [d](#gone) [e](https://example.org/x.md) `[f](code.md)`"

    assert [broken.split(": ")[1] for broken in broken_links("README.md", text)] == ["nowhere.md", "#gone"]
