"""Makes a virtual environment with pip in it: ``python3 .ci/environment.py .venv``.

Debian, for one, ships ``venv`` without ``ensurepip``. Then pip comes from where it would load everything else: by the
pip of that Python, or, when it has none either, as the wheel that the index names, checked by the index's sum. When
that fails, too, this says what to install rather than how Python failed.
"""

from __future__ import annotations

import base64
import configparser
import hashlib
import io
import os
import re
import subprocess
import sys
import urllib.request
import venv
import zipfile
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

INDEX = "https://pypi.org/simple"
CONFIGURED = ("/etc/xdg/pip/pip.conf", "/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf")
WHEEL = re.compile(r"pip-([0-9]+(?:\.[0-9]+)*)-py3-none-any\.whl")
SUM = re.compile(r"sha256=([0-9a-f]{64})")
PATIENCE_SECONDS = 60.0


class NoPip(Exception):
    """It cannot be had here."""


def main() -> None:
    folder = sys.argv[1]
    package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    advice = f"install its venv package (on Debian: apt install {package}) or name another: make PYTHON=/path/to/python"
    has_ensurepip = find_spec("ensurepip") is not None
    try:
        venv.create(folder, clear=True, symlinks=True, with_pip=has_ensurepip)
        if not has_ensurepip:
            put_pip(folder)
    except (OSError, ValueError, NoPip, zipfile.BadZipFile, subprocess.CalledProcessError) as error:
        sys.exit(
            f"{sys.executable} cannot make an environment in {Path(folder).resolve()} ({reason(error)}): {advice}"
        )


def put_pip(folder: str) -> None:
    """Into an environment that was made without."""
    asked = "import sysconfig; print(sysconfig.get_path('purelib'))"
    place = run([f"{folder}/bin/python", "-c", asked]).strip()
    if find_spec("pip") is not None:
        run([sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--target", place, "pip"])
        return
    with zipfile.ZipFile(io.BytesIO(newest_wheel())) as wheel:
        wheel.extractall(place)


def run(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def newest_wheel() -> bytes:
    """The bytes of pip's newest release for this Python, as the index has them."""
    page, where = fetch(f"{index_url().rstrip('/')}/pip/")
    links = Links()
    links.feed(page.decode())
    if not links.wheels:
        raise NoPip(f"{urlsplit(where).hostname} has no wheel of pip for Python {sys.version.split()[0]}")
    _, link, wanted = max(links.wheels)
    data, _ = fetch(urljoin(where, link))
    if hashlib.sha256(data).hexdigest() != wanted:
        raise NoPip(f"{urlsplit(where).hostname} gave a wheel of pip with another sum than it names")
    return data


def index_url() -> str:
    """Where pip would look."""
    if url := os.environ.get("PIP_INDEX_URL"):
        return url
    files = [os.environ["PIP_CONFIG_FILE"]] if "PIP_CONFIG_FILE" in os.environ else []
    given = configparser.RawConfigParser()
    given.read([os.path.expanduser(name) for name in (*CONFIGURED, *files)])
    return given.get("install", "index-url", fallback=given.get("global", "index-url", fallback=INDEX))


def fetch(url: str) -> tuple[bytes, str]:
    """The bytes, and where they were found in the end. Whose the name and password in an address are, is told them."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    request = urllib.request.Request(urlunsplit(parts._replace(netloc=host)))  # noqa: S310 - whatever is configured
    if at:
        known = base64.b64encode(unquote(user).encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {known}")
    with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:  # noqa: S310
        found = urlsplit(answer.url)
        again = found._replace(netloc=parts.netloc) if found.netloc == host else found
        return answer.read(), urlunsplit(again)


class Links(HTMLParser):
    """Of a page of the index: version, address and sum of each wheel of pip that this Python can run."""

    def __init__(self) -> None:
        super().__init__()
        self.wheels: list[tuple[tuple[int, ...], str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        link = urlsplit(told.get("href") or "")
        named, summed = WHEEL.fullmatch(link.path.rpartition("/")[2]), SUM.fullmatch(link.fragment)
        if tag != "a" or named is None or summed is None or "data-yanked" in told:
            return
        least = re.search(r">=\s*3\.([0-9]+)", told.get("data-requires-python") or "")
        if least is None or int(least[1]) <= sys.version_info.minor:
            version = tuple(map(int, named[1].split(".")))
            self.wheels.append((version, urlunsplit(link._replace(fragment="")), summed[1]))


def reason(error: Exception) -> str:
    """One line of it; the last one of a program that failed."""
    said = error.stderr if isinstance(error, subprocess.CalledProcessError) else str(error)
    return (said or str(error)).strip().rpartition("\n")[2]


if __name__ == "__main__":
    main()
