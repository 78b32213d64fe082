# ruff: noqa: E501 - an expected sentence stands on one line
"""`tidemill up` and `tidemill inspect` become the broker's process, after what can be wrong has been looked at."""

import os
import sys
from pathlib import Path

import pytest

from tidemill.cli import up as up_module

MANIFEST = "apiVersion: tidemill.dev/v1alpha1\nkind: Subject\nmetadata: {name: orders}\n"


class Became(BaseException):
    """The process would be another one now."""


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    calls: list[list[str]] = []

    def execv(path: str, arguments: list[str]) -> None:
        assert path == sys.executable
        calls.append(arguments[1:])
        raise Became

    monkeypatch.setattr(os, "execv", execv)
    monkeypatch.setattr(up_module, "find_spec", lambda name: name)
    return calls


def test_up_becomes_the_broker_with_its_settings(command, executed, tmp_path: Path) -> None:
    manifest = tmp_path / "subjects.yaml"
    manifest.write_text(MANIFEST)
    with pytest.raises(Became):
        command("up", "--data", str(tmp_path), "--port", "0", "--http-port", "0", "-f", str(manifest))
    assert executed == [
        ["-P", "-m", "tidemill_standalone", "up", "--data", str(tmp_path), "--host", "127.0.0.1",
         "--http-port", "0", "--port", "0", "-f", str(manifest)]
    ]  # fmt: skip


def test_up_listens_on_this_machine_only_unless_told_otherwise(command, executed) -> None:
    with pytest.raises(Became):
        command("up")
    assert executed[0][4:] == [
        "--data", "tidemill-data", "--host", "127.0.0.1", "--http-port", "7401", "--port", "7400",
    ]  # fmt: skip


def test_a_canary_is_one_more_word_of_a_queue_and_of_a_cluster(command, executed) -> None:
    for more in ((), ("--brokers", "2")):
        with pytest.raises(Became):
            command("up", "--canary", *more)
        with pytest.raises(Became):
            command("up", "--canary", "--canary-port", "0", *more)
        with pytest.raises(Became):
            command("up", "--canary-port", "0", *more)
    ports = [call[call.index("--canary") + 1] if "--canary" in call else None for call in executed]
    assert ports == ["9465", "0", None] * 2


def test_inspect_becomes_the_one_who_reads_logs(command, executed, tmp_path: Path) -> None:
    with pytest.raises(Became):
        command("inspect", "log", str(tmp_path), "--output", "json", "--verify")
    assert executed == [
        ["-P", "-m", "tidemill_broker", "inspect", "log", str(tmp_path), "--output", "json", "--verify"]
    ]


def test_a_missing_server_is_one_sentence_with_the_command_to_run(
    command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(up_module, "find_spec", lambda name: None if name == "uvloop" else name)
    outcome = command("up")
    assert outcome.code == 1
    assert (
        outcome.err
        == "tidemill: `tidemill up` needs the server (uvloop not found): pip install 'tidemill[server]'\n"
    )


@pytest.mark.parametrize(
    "text, said",
    [
        (MANIFEST + "spec: {retention: {messageSecond: 1}}", "document 1: spec.retention.messageSecond is not a known field: did you mean messageSeconds?"),
        (MANIFEST + "---\n" + MANIFEST, "document 2: metadata.name is 'orders', declared already"),
        ("a: [1\nb: 2", "line 2, column 2: is no YAML"),
        ("just a text", "the document is 'just a text': write apiVersion"),
        ("\x00", "is no YAML"),
    ],
)  # fmt: skip
def test_a_wrong_manifest_is_said_before_anything_is_started(
    command, executed, tmp_path: Path, text: str, said: str
) -> None:
    manifest = tmp_path / "wrong.yaml"
    manifest.write_text(text)
    outcome = command("up", "-f", str(manifest))
    assert outcome.code == 1
    assert "wrong.yaml" in outcome.err
    assert said in outcome.err
    assert len(outcome.err.splitlines()) == 1
    assert executed == []


def test_what_is_for_kubernetes_alone_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = tmp_path / "all.yaml"
    manifest.write_text(MANIFEST + "---\n" + MANIFEST.replace("Subject", "QueueCluster"))
    up_module.check_manifests([manifest], alone=True)
    assert capsys.readouterr().err == (
        f"tidemill: {manifest}, document 2: the QueueCluster orders is passed over: "
        "without Kubernetes this queue is the cluster\n"
    )


@pytest.mark.parametrize("alone", [True, False])
def test_fields_that_ask_for_what_nobody_does_here_are_named_once_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], alone: bool
) -> None:
    """What says what happens anyway is obeyed, and not worth a word."""
    head = "apiVersion: tidemill.dev/v1alpha1\nkind: "
    subject = (
        f"{head}Subject\nmetadata: {{name: NAME}}\nspec: {{clusterRef: {{name: prod}}, deletionPolicy: Retain"
    )
    placed = subject + ", placement: {minBrokerGroups: 2}, managementPolicy: Observe}\n"
    grant = (
        f"{head}Grant\nmetadata: {{name: shop}}\nspec: {{clusterRef: {{name: prod}}, principals: [{{kind: Token, "
        "name: shop, secretRef: {name: shop, key: token}}], permissions: [{subjects: ['*'], operations: [Send]}]}\n"
    )
    manifest = tmp_path / "all.yaml"
    some = [placed.replace("NAME", "a"), *(subject.replace("NAME", name) + "}\n" for name in "bcd"), grant]
    manifest.write_text("---\n".join(some))
    up_module.check_manifests([manifest], alone=alone)
    said = [line.partition(" is passed over: ")[0] for line in capsys.readouterr().err.splitlines()]
    assert said == [
        "tidemill: clusterRef of Subject a, Subject b, Subject c and 2 more",
        "tidemill: managementPolicy of Subject a",
        *(["tidemill: placement of Subject a"] if alone else []),
        "tidemill: principals.secretRef of Grant shop",
    ]


def test_a_manifest_that_is_not_text_is_refused(command, executed, tmp_path: Path) -> None:
    manifest = tmp_path / "wrong.yaml"
    manifest.write_bytes(b"\xff\xfe")
    assert "save it as UTF-8" in command("up", "-f", str(manifest)).err


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("up", "-f", "/nowhere.yaml"), "'/nowhere.yaml' cannot be read (No such file or directory)"),
        (("up", "--port", "65536"), "--port"),
        (("up", "--port", "1", "--http-port", "1"), "choose two different ones"),
        (("up", "--data", "/dev/null"), "is a file: name a folder"),
        (("inspect", "log", "/nowhere"), "'/nowhere' does not exist"),
        (("inspect", "log", "/", "--bogus"), "--bogus"),
    ],
)
def test_a_wrong_command_is_one_sentence_and_exit_code_two(
    command, executed, arguments: tuple[str, ...], said: str
) -> None:
    outcome = command(*arguments)
    assert outcome.code == 2
    assert said in outcome.err
    assert len(outcome.err.splitlines()) == 1
    assert executed == []
