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
from collections.abc import Sequence
from pathlib import Path

PAUSE = "localhost/pause:1"
COREDNS = "localhost/coredns:1"
PYTHON = "localhost/python:tests"
LEFT_OUT = {"__pycache__", "test", "idlelib", "tkinter", "turtledemo", "site-packages", "ensurepip"}
USERS = "root:x:0:0::/root:/bin/sh\napp:x:10001:10001::/home:/bin/sh\n"
GROUPS = "root:x:0:\napp:x:10001:\n"


def pack(target: Path, name: str, root: Path, entrypoint: Sequence[str] = ()) -> Path:
    """One layer: all that is below ``root``, as files of root."""
    layer = target.with_name(f"{target.name}.layer")
    with tarfile.open(layer, "w") as archive:
        archive.add(root, ".", filter=owned_by_root)
    with layer.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    config = json.dumps({
        "architecture": "arm64" if os.uname().machine == "aarch64" else "amd64",
        "os": "linux",
        "config": {"Entrypoint": [*entrypoint], "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"], "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }).encode()  # fmt: skip
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = [{"Config": config_name, "RepoTags": [name], "Layers": [f"{digest}.tar"]}]
    with tarfile.open(target, "w") as archive:
        for file, content in (("manifest.json", json.dumps(manifest).encode()), (config_name, config)):
            member = tarfile.TarInfo(file)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        archive.add(layer, f"{digest}.tar")
    layer.unlink()
    return target


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
