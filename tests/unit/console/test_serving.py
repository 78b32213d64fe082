"""The console's files: a fixed table, sent with a policy that lets nothing else in."""

from __future__ import annotations

import asyncio
import re
from collections import Counter

import aiohttp
import pytest

from tidemill_console.serving import POLICY, Pages, pages
from tidemill_host.web import Web

BROWSER = {"Accept-Language": "en", "Accept": "text/html"}


async def get(path: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
    """An answer as it comes, with nothing followed or unpacked."""
    web = Web({}, bytes, Counter(), Pages().routes())
    port = await web.listen("127.0.0.1", 0)
    try:
        async with (
            aiohttp.ClientSession(auto_decompress=False) as session,
            session.get(f"http://127.0.0.1:{port}{path}", headers=headers, allow_redirects=False) as response,
        ):
            return response.status, dict(response.headers), await response.read()
    finally:
        await web.close()


def got(path: str, headers: dict[str, str] | None = None) -> tuple[int, dict[str, str], bytes]:
    return asyncio.run(get(path, {**BROWSER, "Accept-Encoding": "identity", **(headers or {})}))


def test_every_file_is_sent_as_what_it_is_with_the_policy() -> None:
    kinds = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
    for name, page in pages().items():
        status, headers, body = got(f"/console/{name}")
        assert (status, body) == (200, page.data)
        assert headers["Content-Type"].startswith(kinds[name.rpartition(".")[2]])
        assert headers["Content-Security-Policy"] == POLICY
        assert headers["X-Content-Type-Options"] == "nosniff"


def test_policy_lets_nothing_in_from_elsewhere_and_makes_no_markup_of_text() -> None:
    rules = dict(rule.split(" ", 1) for rule in POLICY.split("; "))

    assert {sources for name, sources in rules.items() if name.endswith("-src")} == {"'none'", "'self'"}
    assert (rules["frame-ancestors"], rules["form-action"], rules["base-uri"]) == ("'none'",) * 3
    assert (rules["require-trusted-types-for"], rules["trusted-types"]) == ("'script'", "'none'")


def test_no_file_makes_markup_or_code_of_text_or_names_another_place() -> None:
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc|DOMParser|\bstyle=|"
        r"\bon\w+=[\"']|javascript:"
    )
    for name, page in pages().items():
        text = page.data.decode()
        assert forbidden.findall(text) == [], name
        assert set(re.findall(r"https?://[^\s\"'<>)]+", text)) <= {"http://www.w3.org/2000/svg"}, name


def test_what_the_pages_load_is_there() -> None:
    for name, page in pages().items():
        folder = name.rpartition("/")[0]
        for loaded in re.findall(r"(?:from |import\()\"([^\"]+)\"", page.data.decode()):
            parts = [part for part in f"{folder}/{loaded}".split("/") if part not in ("", ".")]
            while ".." in parts:
                at = parts.index("..")
                del parts[at - 1 : at + 1]
            assert "/".join(parts) in pages(), (name, loaded)
    for loaded in re.findall(rb"(?:src|href)=\"/console/([^\"]+)\"", pages()["index.html"].data):
        assert loaded.decode() in pages()


def test_root_leads_a_browser_to_the_console_and_a_program_nowhere() -> None:
    assert got("/")[:2][0] == 302
    assert got("/")[1]["Location"] == got("/console")[1]["Location"] == "/console/"
    assert got("/console/")[2] == pages()["index.html"].data
    assert got("/", {"Accept": "*/*"})[0] == 404


def test_page_that_is_known_is_not_sent_again_and_may_come_packed() -> None:
    _, headers, _ = got("/console/app.js")
    _, packed, body = got("/console/app.js", {"Accept-Encoding": "gzip, br"})

    assert got("/console/app.js", {"If-None-Match": headers["Etag"]})[0] == 304
    assert packed["Content-Encoding"] == "gzip"
    assert len(body) < len(pages()["app.js"].data) / 2


@pytest.mark.parametrize(
    "path",
    ["/console/nothing.js", "/console/..%2fserving.py", "/console/%2e%2e/serving.py", "/console/views/..%2fapp.js",
     "/console/views", "/console/views/", "/console//etc/passwd", "/console/pages/app.js", "/console/py.typed"],
)  # fmt: skip
def test_no_path_leads_out_of_the_table(path: str) -> None:
    assert got(path)[0] == 404


def test_whole_console_is_light() -> None:
    """What a first visit loads, packed."""
    assert sum(len(page.packed) for page in pages().values()) < 64 * 1024
