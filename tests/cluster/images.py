"""Images without Docker, registry or root: directories as what `docker save` writes, which containerd imports."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"
PAUSE = "localhost/pause:1"
COREDNS = "localhost/coredns:1"
PYTHON = "localhost/python:tests"
LEFT_OUT = {"__pycache__", "test", "idlelib", "tkinter", "turtledemo", "site-packages", "ensurepip"}
USERS = "root:x:0:0::/root:/bin/sh\napp:x:10001:10001::/home:/bin/sh\n"
GROUPS = "root:x:0:\napp:x:10001:\n"


def pack(target: Path, name: str, root: Path, entrypoint: Sequence[str] = ()) -> Path:
    """One layer: all that is below ``root``, as files of root."""
    config = {
        "architecture": "arm64" if os.uname().machine == "aarch64" else "amd64",
        "os": "linux",
        "config": {"Entrypoint": [*entrypoint], "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"], "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": []},
    }  # fmt: skip
    with tarfile.open(target, "w") as archive:
        archive.addfile(*in_memory(MANIFEST, json.dumps([put(archive, name, config, [], root)]).encode()))
    return target


def pack_beside(target: Path, name: str, root: Path, entrypoint: Sequence[str]) -> None:
    """Another image in an archive: that which is there, one layer more, and begun with something else.

    What is appended counts: of two files of a name, the last one is what a tar holds.
    """
    with tarfile.open(target) as archive:
        manifest = json.loads(content_of(archive, MANIFEST))
        config = json.loads(content_of(archive, manifest[0]["Config"]))
    config["config"] |= {"Entrypoint": [*entrypoint], "Cmd": []}
    config.pop("history", None)
    with tarfile.open(target, "a") as archive:
        manifest.append(put(archive, name, config, manifest[0]["Layers"], root))
        archive.addfile(*in_memory(MANIFEST, json.dumps(manifest).encode()))


def put(
    archive: tarfile.TarFile, name: str, config: dict[str, Any], below: Sequence[str], root: Path
) -> dict[str, object]:
    """A layer on those below, and what the image is; what the manifest says of it."""
    with tempfile.TemporaryFile() as layer:
        with tarfile.open(fileobj=layer, mode="w") as packed:
            packed.add(root, ".", filter=owned_by_root)
        size = layer.tell()
        layer.seek(0)
        digest = hashlib.file_digest(layer, "sha256").hexdigest()
        layer.seek(0)
        member = tarfile.TarInfo(f"{digest}.tar")
        member.size = size
        archive.addfile(member, layer)
    config["rootfs"]["diff_ids"].append(f"sha256:{digest}")
    content = json.dumps(config).encode()
    config_name = f"{hashlib.sha256(content).hexdigest()}.json"
    archive.addfile(*in_memory(config_name, content))
    return {"Config": config_name, "RepoTags": [name], "Layers": [*below, f"{digest}.tar"]}


def in_memory(name: str, content: bytes) -> tuple[tarfile.TarInfo, io.BytesIO]:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    return member, io.BytesIO(content)


def content_of(archive: tarfile.TarFile, name: str) -> bytes:
    member = archive.extractfile(name)
    assert member is not None
    return member.read()


def owned_by_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


def pack_program(target: Path, name: str, program: Path) -> Path:
    """An image of one program that needs nothing else."""
    root = target.with_name(f"{target.name}.root")
    root.mkdir()
    os.link(program, root / program.name)
    try:
        return pack(target, name, root, [f"/{program.name}"])
    finally:
        shutil.rmtree(root)


def pack_python(target: Path) -> Path:
    """An image of the Python that runs this, with its library, a shell, and nothing to install more with."""
    root = target.with_name(f"{target.name}.root")
    for folder in ("bin", "etc", "tmp", "proc", "sys", "dev", "home", "usr/local/bin"):
        (root / folder).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    try:
        put_python(root)
        for program in ("sh", "cat", "ls", "sleep"):
            shutil.copy(f"/bin/{program}", root / "bin")
        put_libraries(root)
        (root / "etc/passwd").write_text(USERS)
        (root / "etc/group").write_text(GROUPS)
        return pack(target, PYTHON, root)
    finally:
        shutil.rmtree(root)


def put_python(root: Path) -> None:
    """At the same place as here, since it looks for its library there."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    program = Path(sys.base_prefix) / "bin" / version
    inside(root, program).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(program, inside(root, program))
    library = Path(
        sysconfig.get_path("stdlib", vars={"base": sys.base_prefix, "installed_base": sys.base_prefix})
    )
    shutil.copytree(library, inside(root, library), ignore=left_out, symlinks=True, dirs_exist_ok=True)
    for name in ("python3", "python"):
        link = root / "usr/local/bin" / name
        if not link.exists():
            link.symlink_to(program)


def left_out(_: str, names: list[str]) -> set[str]:
    return {name for name in names if name in LEFT_OUT or name.startswith("config-") or name.endswith(".a")}


def put_libraries(root: Path) -> None:
    """Of all that is there, as the loader finds them here; and those by which names are looked up."""
    programs = [
        str(path)
        for path in root.rglob("*")
        if path.is_file() and (".so" in path.name or os.access(path, os.X_OK))
    ]
    said = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False).stdout
    wanted = {Path(found) for found in re.findall(r"(?:=> |^\s+)(/\S+) \(", said, re.MULTILINE)}
    wanted |= {library.parent / f"libnss_{name}.so.2" for library in wanted if library.name == "libc.so.6"
               for name in ("files", "dns")}  # fmt: skip
    for library in wanted:
        if library.exists() and not inside(root, library).exists():
            inside(root, library).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, inside(root, library))


def inside(root: Path, path: Path) -> Path:
    return root / path.relative_to("/")
