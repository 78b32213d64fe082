"""Whatever is typed in a wrong way is one sentence on standard error, with what to do, and exit code 2, or 1 for a file
that says what cannot be.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidemill.cli import run

FILES = {
    "broken.yaml": b"kind: Subject\n  metadata: [\n",
    "other.yaml": b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: x\n",
    "strange.yaml": b"apiVersion: tidemill.dev/v1alpha1\nkind: MessageCluster\nmetadata:\n  name: x\n",
    "range.yaml": b"apiVersion: tidemill.dev/v1alpha1\nkind: Subject\nmetadata:\n  name: x\n"
    b"spec:\n  retention:\n    messageSeconds: -4\n",
    "subject.yaml": b"apiVersion: tidemill.dev/v1alpha1\nkind: Subject\nmetadata:\n  name: x\n",
    "bytes.yaml": b"\xff\xfe",
    "empty.yaml": b"",
}

WRONG = [
    ("nosuch", 2, "No such command 'nosuch'"),
    ("--nosuch", 2, "No such option: --nosuch"),
    ("up extra", 2, "(extra)"),
    ("up --port 99999", 2, "'--port': write 65535 or less"),
    ("up --brokers 0", 2, "'--brokers': write 1 or more"),
    ("up --brokers some", 2, "'--brokers': write a whole number"),
    ("up --port 7600 --http-port 7600", 2, "choose two different ones"),
    ("up --data subject.yaml", 2, "name a folder"),
    ("up --log-format xml", 2, "'xml' is not one of 'text', 'json'"),
    ("up --tls-cert here.pem", 2, "add --tls-key FILE"),
    ("up --tls-key here.pem", 2, "add --tls-cert FILE"),
    ("up --cluster-token absent/token", 2, "name a file in a folder"),
    *((f"{command} -f absent.yaml", 2, "No such file or directory") for command in ("up", "apply", "grants set")),
    *((f"{command} -f folder", 2, "Is a directory") for command in ("up", "apply", "grants set")),
    *((f"{command} -f broken.yaml", 1, "broken.yaml, line 2") for command in ("up", "apply", "grants set")),
    *((f"{command} -f bytes.yaml", 1, "save it as UTF-8") for command in ("up", "apply", "grants set")),
    *((f"{command} -f other.yaml", 1, "tidemill.dev/v1alpha1") for command in ("up", "apply", "grants set")),
    *((f"{command} -f strange.yaml", 1, "did you mean QueueCluster?") for command in ("up", "apply", "grants set")),
    *((f"{command} -f range.yaml", 1, "from 60 to") for command in ("up", "apply", "grants set")),
    ("apply", 2, "'--file'"),
    ("apply -f empty.yaml", 1, "write a Subject, a ConsumerGroup or a Grant"),
    ("grants set -f subject.yaml", 1, "write one, or name another file"),
    ("send", 2, "'SUBJECT'"),
    ("send a b --lines c", 2, "exclude each other"),
    ("send a --lines absent", 2, "No such file or directory"),
    ("send a --file folder", 2, "Is a directory"),
    ("send a b --priority 9", 2, "from 0"),
    ("send a b --delay soon", 2, "--delay 'soon' is no duration"),
    ("send a b --delay 9999d", 2, "give it a nearer time"),
    ("send a b --at 2027-01-01", 2, "no time zone"),
    ("send a b --cron @daily", 2, "add --timer-key KEY"),
    ("send a b --cron never --timer-key k", 2, "is no cron expression"),
    ("send a b -o table", 2, "'table' is not one of 'text', 'json', 'yaml'"),
    ("consume", 2, "'SUBJECT'"),
    ("consume a --count 0", 2, "write 1 or more"),
    ("consume a --timeout -1", 2, "write 0 or more"),
    ("consume a --exclusive --broadcast", 2, "exclude each other"),
    ("browse a --sequence one", 2, "write a whole number"),
    ("find", 2, "say what to find"),
    ("find ID --key k", 2, "an ID finds one message"),
    ("worker absent:worker", 2, "there is no module absent"),
    ("worker os:path", 2, "name a Worker that it makes"),
    ("expand a", 2, "--partitions N, --to GROUP or --give-up"),
    ("groups seek a b", 2, "'--to'"),
    ("groups seek a b --to never", 2, "'never' is no place"),
    ("dead list a", 2, "'--group'"),
    ("timers show", 2, "an ID, or --subject and --timer-key"),
    ("timers reschedule 01a1f954d65f00003f7a947ccde48a7b-0", 2, "--delay or --at"),
    ("transactions show some", 2, "is no transaction"),
    ("outbox status", 2, "'--url'"),
    ("outbox retry --url sqlite:///x.db", 2, "--row ID, as often as needed, or --all"),
    ("outbox purge --all --url sqlite:///x.db", 2, "say --yes"),
    ("outbox purge --row x --yes --url sqlite:///x.db", 2, "write a whole number"),
    ("outbox status --url nonsense", 1, "look at --url"),
    ("grants set", 2, "or --file"),
    ("grants set x", 2, "write --to WHO"),
    ("tokens create shop --expires never", 2, "--expires 'never' is no duration"),
    ("brokers state g0 X", 2, "'X' is not one of 'RW', 'R', 'W', 'NRW'"),
    ("log-level loud", 2, "'loud' is not one of"),
    ("log-level debug --for 0", 2, "write 1 or more"),
    ("inspect log absent", 2, "name the folder"),
    ("status --server nonsense", 2, "write HOST:PORT"),
    ("status --server host:99999", 2, "write HOST:PORT"),
    ("doctor --over -1", 2, "write 0 or more"),
    ("top --every 0", 2, "write 0.1 or more"),
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where all of it is typed."""
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    for name in ("TIDEMILL_SERVER", "TIDEMILL_OUTBOX_URL", "TIDEMILL_TLS_KEY", "TIDEMILL_TLS_CERT"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("line, code, named", WRONG, ids=[line for line, _, _ in WRONG])
def test_what_is_typed_in_a_wrong_way_is_one_sentence(
    line: str, code: int, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(line.split()) == code
    out, err = capsys.readouterr()
    assert err.startswith("tidemill: ")
    assert err.count("\n") == 1, err
    assert named in err
    assert "Error" not in err.replace("OperationalError", "")
    assert out == ""


@pytest.mark.parametrize(
    "line", ["nosuch", "run", "run --workers x --subject s --to u", "find u --limit x", "status u -o xml"]
)
def test_archives_are_asked_with_the_same_manners(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = pytest.importorskip("tidemill_spark.jobs.command")
    with pytest.raises(SystemExit) as ended:
        command.main(line.split())
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("tidemill: ")
    assert err.count("\n") == 1, err
    assert "--help`" in err


def test_an_archive_that_is_not_there_is_not_an_empty_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = pytest.importorskip("tidemill_spark.jobs.command")
    for arguments in (["status", str(tmp_path)], ["find", str(tmp_path), "--key", "k"]):
        assert command.main(arguments) == 1
        assert "nothing is archived at" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["--version", "--help", "send --help"])
def test_an_output_that_is_full_is_one_sentence(line: str) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tidemill.cli", *line.split()], stdout=full, stderr=subprocess.PIPE, check=False,
            timeout=120,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.decode().splitlines() == [
        "tidemill: the output cannot be written, its disk is full: free space and run it again"
    ]


def test_closed_streams_are_no_trouble() -> None:
    """Supervisors start programs without any, and the first file that is opened must not take a stream's place."""
    done = subprocess.run(
        ["sh", "-c", '"$0" -m tidemill.cli subjects --server 127.0.0.1:1 0<&- 1>&-', sys.executable],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("tidemill: nothing answers at 127.0.0.1:1")
    assert done.stderr.count("\n") == 1


def test_what_a_locale_cannot_show_is_written_as_utf_8_into_a_pipe() -> None:
    """As messages are that are not touched."""
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    program = "from tidemill.cli.streams import opened_streams as o; o(); print('gr\\u00fc\\u00dfe')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        check=True,
        env={**os.environ, **locale},
        timeout=120,
    )
    assert done.stdout == "grüße\n".encode()
