"""Skaffold of Go's proxy, as a program in the cache: built in a copy of its module, which has replace directives."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

from cluster.cache import News, Show, base, news_path, turn
from cluster.toolchain import CannotBuild, compile_loudly, go, run, tail

MODULE, VERSION = "github.com/GoogleContainerTools/skaffold/v2", "v2.16.1"
SUM = "h1:eMrp2qpn/5j2c1P/JqLo+mxcpEIdtokb/tCY2W/05ic="
HERE = Path(__file__).parent


def skaffold(show: Show = print) -> Path:
    """The program; about four minutes of two cores, once."""
    program = base() / f"skaffold-{VERSION}" / "skaffold"
    if not program.exists():
        with turn(program.parent, show):
            if not program.exists():
                build(program, News(news_path(program.parent), show))
    return program


def build(program: Path, news: News) -> None:
    program.parent.mkdir(parents=True, exist_ok=True)
    news.say(f"building skaffold {VERSION} in {program.parent}: about four minutes on two cores, once")
    compiler = go(HERE / "kube")
    with tempfile.TemporaryDirectory(dir=program.parent) as work:
        told = json.loads(run([compiler, "mod", "download", "-json", f"{MODULE}@{VERSION}"]))
        if told["Sum"] != SUM:
            raise CannotBuild(
                f"{MODULE} {VERSION} is {told['Sum']}, and {SUM} was tried: try it, and write its sum"
            )
        source = Path(work) / "module"
        shutil.copytree(told["Dir"], source)
        for path in (source, *source.rglob("*")):
            path.chmod(path.stat().st_mode | 0o200)
        part = Path(work) / "skaffold"
        flags = ["-v", "-trimpath", "-gcflags=all=-dwarf=false", "-ldflags", "-s -w", "-o", str(part)]
        command = ["setpriv", "--pdeathsig", "KILL", compiler, "build", *flags, "./cmd/skaffold"]
        if said := compile_loudly(command, source, "skaffold", news.say):
            raise CannotBuild(f"skaffold could not be built: {tail(said)}")
        os.rename(part, program)
