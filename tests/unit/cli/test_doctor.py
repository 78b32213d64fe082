"""Each check of `tidemill doctor` finds what it is there for, in a picture of it, and nothing in one that is well."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from samples.pictures import (
    NOW_MS,
    SYSTEM,
    archive,
    broker_group,
    canary_page,
    consumer_group,
    member,
    node,
    picture,
    with_groups,
    with_nodes,
    with_numbers,
)
from tidemill.cli.doctor import CHECKS, examined, sentences
from tidemill.cli.findings import NAMED_MAX, Case, Severity, warning
from tidemill.cli.picture import Picture

REFUSED = 'tidemill_refused_total{reason="too_slow"}'


def groups(*rows: dict[str, Any]) -> Picture:
    return picture(groups=list(rows))


def system(name: str, **more: Any) -> Picture:
    return with_nodes({name: {"system": SYSTEM._replace(**more)}})


def certified(name: str, *, life_days: float, left_days: float, service: str = "") -> Picture:
    """One process speaks TLS."""
    said = {"ends": NOW_MS / 1000 + left_days * 86_400, "life": life_days * 86_400}
    return with_numbers(
        name, **{f"tidemill_{service}certificate_{what}_seconds": value for what, value in said.items()}
    )


def earlier(now: Picture) -> Picture:
    return replace(now, at_s=now.at_s - 10)


ILL: dict[str, tuple[Severity, str, Case]] = {
    "registered": (Severity.ERROR, "meta", Case(groups())),
    "led": (Severity.ERROR, "g1", Case(groups(broker_group("g0"), broker_group("g1", problem="nobody is in sync")))),
    "heard": (
        Severity.ERROR, "g1-1",
        Case(groups(broker_group("g1", brokers=[member("g1-0"), member("g1-1", "slave", alive=False)]))),
    ),
    "in_sync": (Severity.ERROR, "g1", Case(groups(broker_group("g0"), broker_group("g1", in_sync=["g1-0"])))),
    "lone_masters": (
        Severity.WARNING, "g1",
        Case(groups(broker_group("g0"), broker_group("g1", brokers=[member("g1-0")], in_sync=["g1-0"]))),
    ),
    "opened": (Severity.WARNING, "g1", Case(groups(broker_group("g0"), broker_group("g1", draining=True)))),
    "disks": (Severity.ERROR, "g0-0", Case(with_numbers("g0-0", tidemill_disk_free_bytes=4.0))),
    "readable": (Severity.ERROR, "g0-1", Case(with_numbers("g0-1", tidemill_unread_total=1.0))),
    "certificates": (Severity.WARNING, "g0-1", Case(certified("g0-1", life_days=90, left_days=10))),
    "files": (Severity.ERROR, "g1-0", Case(system("g1-0", files_open=900, files_max=1000))),
    "clocks": (Severity.WARNING, "g1-0", Case(system("g1-0", ahead_ms=-1_500))),
    "versions": (Severity.WARNING, "versions", Case(system("g1-0", version="0.2.0"))),
    "restarted": (Severity.WARNING, "g1-0", Case(system("g1-0", began_ms=NOW_MS - 5_000))),
    "late": (
        Severity.ERROR, "g0-0",
        Case(with_numbers("g0-0", tidemill_delay_lateness_seconds=9.0, tidemill_delay_due=4.0)),
    ),
    "paused": (Severity.ERROR, "billing of orders", Case(with_groups(consumer_group(paused="KeyError")))),
    "failing": (Severity.WARNING, "billing of orders", Case(with_groups(consumer_group(failed=2)))),
    "growing": (
        Severity.WARNING, "billing of orders",
        Case(with_groups(consumer_group(lag=900, acked=100)), with_groups(consumer_group(lag=200), at_s=90.0)),
    ),
    "unattended": (Severity.WARNING, "billing of orders", Case(with_groups(consumer_group(lag=1, consumers=0)))),
    "suspended": (Severity.WARNING, "billing of orders", Case(with_groups(consumer_group(lag=1, suspended=True)))),
    "kept_back": (Severity.WARNING, "billing of orders", Case(with_groups(consumer_group(over_quota="token:shop")))),
    "buried": (Severity.WARNING, "billing of orders", Case(with_groups(consumer_group(dead=2)))),
    "leases": (
        Severity.WARNING, "g0-0",
        Case(with_numbers("g0-0", tidemill_leases_ended_total=50.0, tidemill_messages_out_total=2_000.0)),
    ),
    "expired": (Severity.ERROR, "g0-0", Case(with_numbers("g0-0", tidemill_expired_messages_total=1.0))),
    "refused": (Severity.WARNING, "g0-0", Case(with_numbers("g0-0", **{REFUSED: 3.0}), earlier(picture()))),
    "silent": (Severity.WARNING, "g1-0", Case(with_numbers("g1-0", tidemill_transactions_silent_total=1.0))),
    "unconsumed": (
        Severity.WARNING, "ordres",
        Case(with_nodes({"g1-0": {"subjects": [{"name": "ordres", "messages": 2}]}})),
    ),
    "unarchived": (Severity.ERROR, "archive lake", Case(picture(archives=[archive("Failed")]))),
    "archived": (
        Severity.WARNING, "g0-0",
        Case(with_numbers("g0-0", tidemill_archive_lag_seconds=300_000.0, tidemill_archive_lag_messages=7.0)),
    ),
    "canary": (Severity.ERROR, "g0", Case(picture(canary=canary_page(silent_ms=99_000)))),
}  # fmt: skip


def test_every_check_has_its_row_in_the_documents() -> None:
    page = (Path(__file__).parents[3] / "docs" / "command-line.md").read_text()
    assert re.findall(r"^\| `(\w+)` \| (?!`)", page.partition("## What is wrong")[2], re.MULTILINE) == [
        check.__name__ for check in CHECKS
    ]


def test_every_check_has_its_illness() -> None:
    assert sorted(check.__name__ for check in CHECKS) == sorted(ILL)


@pytest.mark.parametrize("name", ILL)
def test_check_finds_its_illness_and_nothing_in_health(name: str) -> None:
    severity, about, ill = ILL[name]
    [check] = [one for one in CHECKS if one.__name__ == name]
    assert list(check(Case(picture(), earlier(picture())))) == []
    [found, *_] = list(check(ill))
    assert (found.severity, found.about) == (severity, about)
    assert found.advice
    assert found.what


def test_what_a_group_fails_of_is_told_and_what_passes_is_not() -> None:
    errors = {
        ("orders", "billing"): [
            {"fingerprint": "aa", "reason": "no such customer", "last_ms": 2},
            {"fingerprint": "bb", "reason": "mail is down", "last_ms": 3},
        ]
    }
    ill = replace(with_groups(consumer_group(failed=2, consumers=0)), errors=errors)
    told = {name: one.what for name, one in examined(Case(ill, earlier(ill)))}
    assert told == {
        "failing": "2 failed messages to be tried again: mail is down",
        "unattended": "2 messages to consume, and no consumer is there",
    }
    well = earlier(with_groups(consumer_group(failed=0, consumers=0)))
    assert "failing" not in {name for name, _ in examined(Case(ill, well))}
    paused = replace(with_groups(consumer_group(failed=2, paused="aa")), errors=errors)
    assert [(name, one.what) for name, one in examined(Case(paused))] == [
        ("paused", "it is paused, its deliveries fail alike: no such customer")
    ]


def test_nobody_is_told_to_forget_who_may_have_what_nobody_else_has() -> None:
    members = [member("g1-0", alive=False), member("g1-1", "slave", alive=False)]
    for problem, advised in (("nobody in sync lives", False), ("", True)):
        ill = groups(broker_group("g1", brokers=members, problem=problem))
        advice = [one.advice for _, one in examined(Case(ill)) if one.about == "g1-0"]
        assert len(advice) == 1
        assert ("brokers forget g1 g1-0" in advice[0]) is advised


def test_queue_by_itself_that_is_well_has_no_findings() -> None:
    [alone] = [one for one in picture().nodes if one.name == "g0-0"]
    lone = picture(nodes=[alone], groups=[], is_lone=True)
    assert examined(Case(lone, earlier(lone))) == []


def test_broker_of_a_group_is_told_to_ask_meta() -> None:
    lone = picture(nodes=[node("g0-1", "slave")], groups=[], is_lone=True)
    [(check, found)] = examined(Case(lone))
    assert check == "registered"
    assert "meta" in found.advice


def test_clock_of_one_process_is_compared_with_ours_less_what_is_unsure() -> None:
    def alone(ahead_ms: int, unsure_ms: int) -> Picture:
        told = SYSTEM._replace(ahead_ms=ahead_ms, unsure_ms=unsure_ms)
        return picture(nodes=[node("g0-0", system=told)], groups=[], is_lone=True)

    assert [found.about for _, found in examined(Case(alone(5_000, 10)))] == ["g0-0"]
    assert examined(Case(alone(5_000, 5_000))) == []


def test_disk_that_is_nearly_full_is_a_warning() -> None:
    [(_, found)] = examined(Case(with_numbers("g0-0", tidemill_disk_free_bytes=10.0)))
    assert found.severity is Severity.WARNING


def test_disk_of_a_delay_service_is_judged_too() -> None:
    full = node(
        "d0-0",
        service="delay",
        numbers={"tidemill_delay_free_bytes": 4.0, "tidemill_delay_total_bytes": 100.0},
    )
    now = picture()
    [(check, found)] = examined(Case(replace(now, nodes=[*now.nodes, full])))
    assert (check, found.about, found.severity) == ("disks", "d0-0", Severity.ERROR)


@pytest.mark.parametrize(
    ("life_days", "left_days", "found"),
    [
        (3650, 22, []),
        (3650, 20, [Severity.WARNING]),
        (90, 19, []),
        (90, 17, [Severity.WARNING]),
        (1, 0.25, []),
        (1, 0.15, [Severity.WARNING]),
        (90, -1, [Severity.ERROR]),
    ],
)
@pytest.mark.parametrize("service", ["", "delay_", "meta_"])
def test_certificate_is_judged_by_its_life_and_by_days(
    service: str, life_days: float, left_days: float, found: list[Severity]
) -> None:
    ill = certified("meta-0", life_days=life_days, left_days=left_days, service=service)
    assert [one.severity for check, one in examined(Case(ill)) if check == "certificates"] == found


def test_restarted_process_is_not_taken_for_one_that_refuses() -> None:
    before = earlier(with_nodes({"g0-0": {"system": SYSTEM._replace(pid=9)}}))
    now = with_numbers("g0-0", **{REFUSED: 3.0})
    assert [name for name, _ in examined(Case(now, before)) if name == "refused"] == []


def test_errors_come_first_and_what_is_much_is_not_all_named() -> None:
    rows = [consumer_group(f"g{number:02}", dead=1) for number in range(NAMED_MAX + 5)]
    now = with_nodes({"g0-0": {"groups": rows}}, with_numbers("g0-1", tidemill_unread_total=1.0))
    found = examined(Case(now))
    assert found[0][1].severity is Severity.ERROR
    lines = sentences(found)
    assert sum("dead letter" in line for line in lines) == NAMED_MAX
    assert any("… and 5 more" in line for line in lines)
    assert sentences([("buried", warning("a", "b", "c"))])[0] == "WARNING  a: b"


@pytest.mark.parametrize(
    "ill, said",
    [
        (
            {"probes": {"now": {"lost": 3, "found": 1}}, "lost_of_late": ["1f-0"]},
            "2 probes of its canary were stored",
        ),
        ({"doubled": {"stored": 1, "acknowledged": 0}}, "1 were stored twice"),
        ({"doubled": {"stored": 0, "acknowledged": 2}}, "2 came after their ack"),
        ({"problem": "consuming failed: no"}, "of its canary consuming failed: no"),
        ({"failovers": [{"rto_ms": 12_000}]}, "its last change of the master took 12.0 s"),
        ({"crowded": True}, "two canaries of one name"),
    ],
)
def test_what_a_canary_sees_is_told(ill: dict[str, Any], said: str) -> None:
    [(check, found)] = examined(Case(picture(canary=canary_page(**ill))))
    assert check == "canary"
    assert said in found.what


def test_a_canary_that_is_silent_is_an_error_also_when_it_knows_why() -> None:
    ill = canary_page(silent_ms=99_000, problem="a send failed: no")
    found = {one.severity: one.what for _, one in examined(Case(picture(canary=ill)))}
    assert "a send failed" in found[Severity.WARNING]
    assert "has come for 99 s" in found[Severity.ERROR]


def test_a_canary_that_is_well_is_not_mentioned() -> None:
    assert examined(Case(picture(canary=canary_page()))) == []
