"""Every alert fires by series as they look in its fault, and clears after; and has its page, with commands that there
are.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click import Command, Context, Group
from typer.main import get_command

from e2e.prometheus import promtool
from e2e.watched import alerts
from samples.scripts import ROOT
from tidemill.cli import application
from tidemill_wire.metrics.reference import EVERYTHING

pytestmark = pytest.mark.e2e

RUNBOOKS = ROOT / "docs" / "runbooks"
HEADINGS = ["What it means", "What users notice", "What to look at", "What to do"]
MINE = 'namespace="queues"'
CASES: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("rule_cases.yaml").read_text())


def rules() -> list[dict[str, Any]]:
    """Of both charts, for one namespace."""
    return alerts(MINE) + rules_of_the_operator()


def rules_of_the_operator() -> list[dict[str, Any]]:
    """Out of the template, whose one variable is the selector, and whose one pipe quotes a text."""
    text = (ROOT / "charts/tidemill-operator/templates/prometheusrule.yaml").read_text()
    text = text.partition('{{- define "operator.alerts" }}')[2].rpartition("{{- end }}")[0]
    text = text.replace("{{- . -}}", f'{MINE}, service="operator"')
    text = re.sub(r"\{\{ (\".*\") \| quote \}\}", r"\1", text)
    found: list[dict[str, Any]] = yaml.safe_load(text)
    return found


def commands(page: str) -> Iterator[list[str]]:
    """The lines of its shell blocks, as words."""
    for block in re.findall(r"```shell\n(.*?)```", page, re.DOTALL):
        for line in block.splitlines():
            yield shlex.split(line)


def parse(words: list[str]) -> None:
    """As the command line reads it; nothing is done."""
    command: Command = get_command(application.build())
    context = Context(command)
    while isinstance(command, Group) and words:
        _, found, words = command.resolve_command(context, words)
        assert found is not None
        command = found
        context = Context(command, info_name=command.name, parent=context)
    if not isinstance(command, Group):
        command.parse_args(context, words)


def test_every_rule_has_a_case_and_a_page() -> None:
    names = {rule["alert"] for rule in rules()}

    assert names == set(CASES)
    assert names == {path.stem for path in RUNBOOKS.glob("*.md")} - {"README"}


def test_every_alert_fires_in_its_fault_and_clears_after(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": rules()}]}))
    tests: list[dict[str, Any]] = []
    for name, case in CASES.items():
        asked = f'count(ALERTS{{alertname="{name}", alertstate="firing"}})'
        series = [
            {"series": one.replace("{", "{namespace=\"queues\", ", 1), "values": values}
            for one, values in case["series"].items()
        ]  # fmt: skip
        expected = [
            {"expr": asked, "eval_time": "0m", "exp_samples": []},
            {"expr": asked, "eval_time": f"{case['fires']}m", "exp_samples": [{"labels": "{}", "value": 1}]},
            {"expr": asked, "eval_time": f"{case['clears']}m", "exp_samples": []},
        ]
        tests.append({"name": name, "interval": "30s", "input_series": series, "promql_expr_test": expected})
    told = {"rule_files": ["rules.yaml"], "evaluation_interval": "30s", "tests": tests}
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(told))

    done = promtool("test", "rules", str(tmp_path / "tests.yaml"))

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_a_rule_asks_for_metrics_that_there_are(rule: dict[str, Any]) -> None:
    for name in re.findall(r"tidemill_\w+", rule["expr"]):
        metric = EVERYTHING[re.sub("_bucket$", "", name)]
        assert (metric.kind == "histogram") == name.endswith("_bucket"), name
    assert set(rule["annotations"]) == {"summary", "description"}


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_a_page_says_what_to_do_with_commands_that_there_are(rule: dict[str, Any]) -> None:
    page = (RUNBOOKS / f"{rule['alert']}.md").read_text()

    assert page.startswith(f"# {rule['alert']}\n")
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == HEADINGS
    named = re.findall(r"\btidemill_[a-z_]+[a-z]\b", page)
    assert [one for one in named if one not in EVERYTHING and one != "tidemill_broker"] == []
    for words in commands(page):
        assert words[0] in {"tidemill", "curl", "kubectl", "iostat", "top"}, words
        if words[0] == "tidemill":
            parse(words[1:])
