"""`make up` needs Python, git and make: where Python came without ensurepip, pip is had from the index."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pytest

from tidy.tree import ROOT

pytestmark = pytest.mark.e2e

SCRIPT = ROOT / ".ci" / "environment.py"
WITHOUT = """
import runpy, sys
for name in {missing!r}:
    sys.modules[name] = None  # as if it were not installed
sys.argv = ["environment.py", {folder!r}]
runpy.run_path({script!r}, run_name="__main__")
"""


def wheel(version: str) -> bytes:
    """One of a pip that says its version and can do nothing else."""
    files = {
        "pip/__init__.py": "",
        "pip/__main__.py": f"print('pip {version}')",
        f"pip-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: pip\nVersion: {version}\n",
        f"pip-{version}.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = f"pip-{version}.dist-info/RECORD"
    files[record] = "".join(f"{name},,\n" for name in (*files, record))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


class Index(ThreadingHTTPServer):
    """A simple index with some wheels of pip."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Page)
        self.files: dict[str, bytes] = {}
        self.links: list[str] = []
        self.user = ""

    @property
    def url(self) -> str:
        user = f"{self.user}@" if self.user else ""
        return f"http://{user}127.0.0.1:{self.server_port}/simple"

    def add(self, version: str, more: str = "", data: bytes | None = None) -> None:
        name, good = f"pip-{version}-py3-none-any.whl", wheel(version)
        self.files[f"/files/{name}"] = good if data is None else data
        digest = hashlib.sha256(good).hexdigest()
        self.links.append(f'<a href="../../files/{name}#sha256={digest}" {more}>{name}</a>')


class Page(BaseHTTPRequestHandler):
    server: Index

    def do_GET(self) -> None:
        named = base64.b64encode(unquote(self.server.user).encode()).decode()
        known = not self.server.user or self.headers["Authorization"] == f"Basic {named}"
        found = self.server.files.get(self.path)
        if self.path == "/simple/pip/":
            found = f"<html>{''.join(self.server.links)}</html>".encode()
        self.send_response(404 if found is None else 200 if known else 401)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(found or b"")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def index() -> Iterator[Index]:
    with Index() as served:
        thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield served
        served.shutdown()
        thread.join()


def make(folder: Path, missing: Sequence[str], **settings: str) -> subprocess.CompletedProcess[str]:
    """The environment, by a Python that lacks some modules."""
    code = WITHOUT.format(missing=tuple(missing), folder=str(folder), script=str(SCRIPT))
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**clean, **settings}, check=False,
        timeout=120,
    )  # fmt: skip


def pip_in(folder: Path) -> str:
    done = subprocess.run(
        [folder / "bin" / "python", "-m", "pip"], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip()


def test_pip_is_had_by_the_pip_that_there_is(tmp_path: Path, index: Index) -> None:
    index.add("99.0")

    done = make(tmp_path / "venv", ["ensurepip"], PIP_INDEX_URL=index.url)

    assert (done.returncode, done.stderr) == (0, "")
    assert pip_in(tmp_path / "venv") == "pip 99.0"


@pytest.mark.parametrize("configured", ["environment", "file"])
def test_without_any_pip_its_newest_wheel_is_had_from_the_index(
    tmp_path: Path, index: Index, configured: str
) -> None:
    index.user = "shop:sec%40ret"
    for version in ("9.9", "10.1", "10.0.1"):
        index.add(version)
    index.add("11.0", 'data-yanked="broken"')
    index.add("12.0", 'data-requires-python="&gt;=3.99"')
    settings = {"PIP_INDEX_URL": index.url}
    if configured == "file":
        (tmp_path / "pip.conf").write_text(f"[global]\nindex-url = {index.url}\n")
        settings = {"PIP_CONFIG_FILE": str(tmp_path / "pip.conf")}

    done = make(tmp_path / "venv", ["ensurepip", "pip"], **settings)

    assert (done.returncode, done.stderr) == (0, "")
    assert pip_in(tmp_path / "venv") == "pip 10.1"


@pytest.mark.parametrize("missing", [["ensurepip"], ["ensurepip", "pip"]])
def test_a_wheel_with_another_sum_is_refused(tmp_path: Path, index: Index, missing: list[str]) -> None:
    index.add("99.0", data=wheel("98.0"))

    done = make(tmp_path / "venv", missing, PIP_INDEX_URL=index.url)

    assert done.returncode == 1
    assert not list((tmp_path / "venv").rglob("pip/__main__.py"))


@pytest.mark.parametrize("missing", [["ensurepip"], ["ensurepip", "pip"]])
def test_where_pip_is_not_to_be_had_it_is_said_what_to_install(
    tmp_path: Path, index: Index, missing: list[str]
) -> None:
    done = make(tmp_path / "venv", missing, PIP_INDEX_URL=index.url)

    assert done.returncode == 1
    assert "apt install python3" in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
