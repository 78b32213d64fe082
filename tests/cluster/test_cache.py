"""What is built once is found again, made anew when its sources change, and never used half made."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from cluster import build as builder
from cluster.cache import News, folder_of, is_complete, last_line, news_path, turn
from cluster.kwok import PACKAGES
from cluster.programs import Programs, beginning, wait_until

HOLDER = """
import sys
from pathlib import Path
from cluster.cache import turn

with turn(Path(sys.argv[1]), print):
    print("alone", flush=True)
    sys.stdin.read()
"""


def test_folder_is_another_one_when_a_source_or_a_word_changes(tmp_path: Path) -> None:
    source = tmp_path / "main.go"
    source.write_text("package main")
    before = folder_of([source], ["linked"])

    assert folder_of([source], ["linked"]) == before
    assert folder_of([source], ["linked", "stripped"]) != before
    source.write_text("package other")
    assert folder_of([source], ["linked"]) != before


def test_whoever_waits_for_a_builder_hears_its_news_and_is_next_when_it_is_killed(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr("cluster.cache.NEWS_SECONDS", 0.0)
    folder, heard = tmp_path / "kubernetes", list[str]()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": PACKAGES},
    ) as holder:  # fmt: skip
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"alone\n"
        News(news_path(folder), lambda _: None).say("half of it is done")

        def show(text: str) -> None:
            heard.append(text)
            holder.kill()

        with turn(folder, show):
            assert heard
    assert all(text.endswith("half of it is done") for text in heard)


def test_build_that_was_broken_off_goes_on_with_what_is_missing(tmp_path: Path, monkeypatch) -> None:
    """Parts of the one that was killed are not taken for programs."""
    made: list[str] = []

    def make(name: str, target: Path) -> None:
        made.append(name)
        if made == ["helm", "etcd", "kube"]:
            raise KeyboardInterrupt
        target.write_text(name)

    monkeypatch.setattr(builder, "program_of_wheel", lambda name, target, *_: make(name, target))
    monkeypatch.setattr(builder, "go_build", lambda source, target, *_: make(source.name, target))
    monkeypatch.setattr(builder, "put_stages", lambda target: target.mkdir())
    folder = tmp_path / "kubernetes"
    news = News(news_path(folder), lambda _: None)
    try:
        builder.build(folder, news)
    except KeyboardInterrupt:
        (folder / "kube.part-1").write_text("half")
    assert not is_complete(folder)

    builder.build(folder, news)

    assert is_complete(folder)
    assert made == ["helm", "etcd", "kube", "kube", "coredns", "pause"]
    assert not list(folder.glob("*.part-*"))
    assert (folder / "kubectl").resolve() == folder / "kube"
    assert last_line(news_path(folder)).startswith("Kubernetes for tests is built")


def test_processes_of_a_cluster_are_told_to_end_and_then_made_to(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("cluster.programs.GRACE_SECONDS", 0.5)
    processes = Programs(tmp_path, bound=True)
    processes.start("meek", ["sleep", "600"])
    processes.start("stubborn", ["sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 0.1; done"])
    wait_until("it is deaf", lambda: processes.said("stubborn") == "deaf", 10.0)
    pids = [processes.pid(name) for name in ("meek", "stubborn")]
    assert processes.names() == ["stubborn", "meek"]

    processes.stop(*processes.names())

    assert processes.names() == []
    assert [beginning(pid) for pid in pids if pid is not None] == ["", ""]


def test_number_that_another_process_has_got_is_not_ended(tmp_path: Path) -> None:
    processes = Programs(tmp_path, bound=True)
    (tmp_path / "processes").mkdir()
    (tmp_path / "processes/etcd").write_text(f"{os.getpid()} 1")

    assert processes.pid("etcd") is None
    processes.stop("etcd")

    assert processes.names() == []
