"""Modules of Go's proxy that are wanted whole: for what lies in them, or because they have replace directives, which
Go heeds in the main module only, so that their programs are built in a copy.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cluster.cache import News, Show, base, news_path, turn
from cluster.toolchain import CannotBuild, compile_loudly, go, run, tail

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Module:
    name: str
    version: str
    sum: str
    """As in ``go.sum``."""

    def folder(self) -> Path:
        """In Go's own cache, where nothing can be written."""
        told = json.loads(run([compiler(), "mod", "download", "-json", f"{self.name}@{self.version}"]))
        if told["Sum"] != self.sum:
            raise CannotBuild(
                f"{self.name} {self.version} is {told['Sum']}, and {self.sum} was tried: try it, and write its sum"
            )
        return Path(told["Dir"])

    def program(self, package: str, name: str, minutes: str, show: Show) -> Path:
        """One of its programs, in the cache of what tests run; built there unless it is there."""
        program = base() / f"{name}-{self.version}" / name
        if not program.exists():
            with turn(program.parent, show):
                if not program.exists():
                    news = News(news_path(program.parent), show)
                    program.parent.mkdir(parents=True, exist_ok=True)
                    news.say(
                        f"building {name} {self.version} in {program.parent}: "
                        f"about {minutes} minutes on two cores, once"
                    )
                    self._build(package, program, news)
        return program

    def _build(self, package: str, program: Path, news: News) -> None:
        with tempfile.TemporaryDirectory(dir=program.parent) as work:
            source, part = Path(work) / "module", Path(work) / program.name
            shutil.copytree(self.folder(), source)
            for path in (source, *source.rglob("*")):
                path.chmod(path.stat().st_mode | 0o200)
            flags = ["-v", "-trimpath", "-gcflags=all=-dwarf=false", "-ldflags", "-s -w", "-o", str(part)]
            command = ["setpriv", "--pdeathsig", "KILL", compiler(), "build", *flags, package]
            if said := compile_loudly(command, source, program.name, news.say):
                raise CannotBuild(f"{program.name} could not be built: {tail(said)}")
            os.rename(part, program)


def compiler() -> str:
    """That of Kubernetes, which is the most demanding."""
    return go(HERE / "kube")
