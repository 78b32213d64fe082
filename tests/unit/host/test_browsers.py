"""What a page of somebody else makes a browser ask is refused; programs are not looked at."""

from __future__ import annotations

import pytest

from tidemill_host.browsers import name_of, parse_names, refuse_foreign
from tidemill_host.refusals import HttpRefused

BROWSER = {"Accept-Language": "en"}


def code(method: str, headers: dict[str, str], names: str = "") -> str:
    """Of the refusal; empty when there is none."""
    try:
        refuse_foreign(method, headers, parse_names(names))
    except HttpRefused as error:
        return f"{error.code}{'' if error.status == 403 else error.status}"
    return ""


@pytest.mark.parametrize("host", ["queue.example.org:7401", "127.0.0.1:7401", "evil.example", ""])
def test_programs_may_call_the_port_what_they_like(host: str) -> None:
    assert code("POST", {"Host": host}) == ""


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:7401", "[::1]:7401", "10.1.2.3", "localhost:7401", "LOCALHOST", "devbox:80", "a.localhost:1",
     "meta-0.meta.queue.svc:7401", "meta.queue.svc.cluster.local"],
)  # fmt: skip
def test_browser_may_come_by_an_address_or_a_name_that_nobody_owns(host: str) -> None:
    assert code("GET", {**BROWSER, "Host": host}) == ""
    assert code("POST", {**BROWSER, "Host": host, "Origin": f"http://{host}"}) == ""


@pytest.mark.parametrize(
    "host",
    ["evil.example:7401", "127.0.0.1.evil.example", "localhost.evil.example", "svc.evil.example", "evil-svc.example",
     "", ".localhost.", "127.0.0.1@evil.example"],
)  # fmt: skip
@pytest.mark.parametrize("mark", ["Accept-Language", "Origin", "Sec-Fetch-Site"])
def test_name_that_somebody_else_lets_lead_here_is_refused(host: str, mark: str) -> None:
    """DNS rebinding: the page and the port have the same name, so nothing else tells them apart."""
    said = {"Accept-Language": "", "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}[mark]

    assert code("GET", {"Host": host, mark: said}) == "foreign_host"


def test_name_that_was_told_is_taken_and_none_below_it() -> None:
    assert code("GET", {**BROWSER, "Host": "MQ.example.org:7401"}, "mq.example.org, other.example") == ""
    assert code("GET", {**BROWSER, "Host": "a.mq.example.org"}, "mq.example.org") == "foreign_host"


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "http://127.0.0.1:7402", "http://localhost:7401", "", "127.0.0.1:7401"],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_page_of_another_origin_may_ask_nothing(origin: str, method: str) -> None:
    assert code(method, {"Host": "127.0.0.1:7401", "Origin": origin}) == "foreign_page"


@pytest.mark.parametrize(
    "method, site, mode, expected",
    [
        ("GET", "cross-site", "no-cors", "foreign_page"),  # an image or a script of this port in another page
        ("GET", "same-site", "cors", "foreign_page"),  # another port of the same machine
        ("GET", "cross-site", "navigate", ""),  # somebody follows a link
        ("POST", "cross-site", "navigate", "foreign_page"),  # a form
        ("GET", "none", "navigate", ""),  # somebody types the address
        ("POST", "same-origin", "cors", ""),
        ("POST", "", "cors", ""),
        ("POST", "whatever comes later", "cors", "foreign_page"),
    ],
)
def test_what_another_page_embeds_or_posts_is_refused(
    method: str, site: str, mode: str, expected: str
) -> None:
    head = {**BROWSER, "Host": "127.0.0.1:7401", "Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode}

    assert code(method, head) == expected


def test_name_is_what_stands_before_the_port() -> None:
    assert [name_of(host) for host in ("a:1", "a", "[::1]:1", "[::1]", "")] == ["a", "a", "::1", "::1", ""]
