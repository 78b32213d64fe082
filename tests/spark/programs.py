"""What lakes are tried on: Java, HDFS, an S3 server, Delta. Fetched or built once, into the cache of the tests.

HDFS and Delta come from Maven Central, the S3 server (versitygw: a folder behind it) from Go's modules. Java and Maven
are the machine's; as root they are installed by apt-get where there are none.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster import cache
from samples import debian

HERE = Path(__file__).parent
VERSITYGW = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
HDFS_MAIN = "org.apache.hadoop.mapreduce.MiniHadoopClusterManager"
PACKAGES = {"java": "default-jre-headless", "mvn": "maven"}
READY_SECONDS = 120.0
LISTEN = "0A"


def installed(program: str) -> str:
    """Where a program of Debian's is."""
    found = shutil.which(program)
    if found is None and os.geteuid() == 0 and debian.is_debian():
        debian.install(PACKAGES[program])
        found = shutil.which(program)
    if found is None:
        pytest.skip(f"there is no {program} here, and only root can install it")
    return found


@functools.cache
def jars(name: str) -> list[Path]:
    """The jars of ``NAME/pom.xml``."""
    pom = HERE / name / "pom.xml"
    folder = cache.folder_of([pom], ["jars"])
    with cache.turn(folder, print):
        if not cache.is_complete(folder):
            shutil.rmtree(folder, ignore_errors=True)
            copy = [installed("mvn"), "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
            subprocess.run([*copy, f"-DoutputDirectory={folder}"], check=True, timeout=900)
            (folder / cache.MARKER).touch()
    return sorted(folder.glob("*.jar"))


@functools.cache
def versitygw() -> Path:
    """The S3 server."""
    folder = cache.folder_of([], [VERSITYGW])
    with cache.turn(folder, print):
        if not cache.is_complete(folder):
            go = shutil.which("go")
            if go is None:
                pytest.skip("there is no Go here to build an S3 server with")
            folder.mkdir(parents=True, exist_ok=True)
            plain = {name: value for name, value in os.environ.items() if name != "XDG_CACHE_HOME"}
            build = {**plain, "GOBIN": str(folder), "CGO_ENABLED": "0"}
            subprocess.run([go, "install", VERSITYGW], check=True, env=build, timeout=900)
            (folder / cache.MARKER).touch()
    return folder / "versitygw"


@contextmanager
def hdfs(folder: Path) -> Iterator[dict[str, str]]:
    """A NameNode and a DataNode: ``uri``, and the settings that a lake there needs."""
    folder.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join(map(str, jars("hdfs")))
    details, conf = folder / "details.json", folder / "conf.xml"
    start = [
        installed("java"),
        "-Xmx512m",
        f"-Dtest.build.data={folder}",
        "-cp",
        path,
        HDFS_MAIN,
        "-nomr",
        "-format",
    ]
    start += ["-datanodes", "1", "-writeDetails", str(details), "-writeConfig", str(conf)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(start, cwd=folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        wait_for(process, lambda: details.exists() and details.stat().st_size > 0, folder / "log")
        said = conf.read_text()
        (http,) = re.findall(r"<name>dfs\.namenode\.http-address</name>.*?<value>([^<]+)", said, re.DOTALL)
        (uri,) = re.findall(r"<name>fs\.defaultFS</name>.*?<value>([^<]+)", said, re.DOTALL)
        yield {"uri": uri.rstrip("/"), "TIDEMILL_WEBHDFS": http}
    finally:
        process.kill()
        process.wait()


@contextmanager
def s3(folder: Path, address: str = "127.0.0.1") -> Iterator[dict[str, str]]:
    """An S3 server with a bucket."""
    (folder / "data" / "bucket").mkdir(parents=True)
    keys = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "only-for-tests"}
    start = [
        str(versitygw()),
        "--quiet",
        "-a",
        keys["AWS_ACCESS_KEY_ID"],
        "-s",
        keys["AWS_SECRET_ACCESS_KEY"],
    ]
    with (folder / "log").open("wb") as log:
        serve = [*start, "--port", f"{address}:0", "posix", str(folder / "data")]
        process = subprocess.Popen(serve, stdout=log, stderr=log)
    try:
        wait_for(process, lambda: listening(process.pid), folder / "log")
        endpoint = f"http://{address}:{listening(process.pid)[0]}"
        yield {"uri": "s3a://bucket", "AWS_ENDPOINT_URL": endpoint, "AWS_REGION": "us-east-1", **keys}
    finally:
        process.kill()
        process.wait()


def listening(pid: int) -> list[int]:
    """The ports on which a process waits for connections, as Linux knows them."""
    sockets = set[str]()
    for one in Path(f"/proc/{pid}/fd").iterdir():
        found = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(one))
        if found is not None:
            sockets.add(found[1])
    ports: list[int] = []
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == LISTEN and fields[9] in sockets:
            ports.append(int(fields[1].rpartition(":")[2], 16))
    return ports


def wait_for(process: subprocess.Popen[bytes], holds: object, log: Path) -> None:
    assert callable(holds)
    deadline = time.monotonic() + READY_SECONDS
    while not holds():
        assert process.poll() is None, log.read_text()[-2000:]
        assert time.monotonic() < deadline, log.read_text()[-2000:]
        time.sleep(0.1)
