"""What may be wrong with the processes of a cluster, or of a lone queue. Each check is a function of one ``Case``."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from tidemill.cli.findings import Case, Check, Finding, error, warning
from tidemill.cli.picture import Node, after_death

DISK_FULL_PERCENT = 5
DISK_NEAR_PERCENT = 15
"""A person needs a while until there is more disk."""
CERTIFICATE_PART = 0.2
CERTIFICATE_NEAR_SECONDS = 21 * 86_400
"""Whoever renews by hand needs days; what renews by itself does so when a third is left."""
CLOCKS_APART_MS = 1_000
FILES_FEW = 4_096
FILES_NEAR = 0.8
YOUNG_MS = 120_000
LATE_SECONDS = 5.0


def registered(case: Case) -> Iterator[Finding]:
    """A meta without brokers serves nobody."""
    if not case.now.is_lone and not case.now.groups:
        advice = "start one with TIDEMILL_META, or run `tidemill up --brokers 3`"
        yield error("meta", "no broker has registered", advice)
    if case.now.is_lone:
        for node in case.now.brokers:
            if node.role != "master":
                advice = "ask meta for all of them, with --server"
                yield warning(node.name, "it is one broker of a group, of which it can say little", advice)


def led(case: Case) -> Iterator[Finding]:
    for group in (*case.now.groups, *case.now.delays):
        if group["problem"] and not group["retired"]:
            advice = "start its brokers again, the one that was master first; docs/oncall/lose-a-broker.md"
            yield error(group["group"], f"it has no master: {group['problem']}", advice)


def heard(case: Case) -> Iterator[Finding]:
    """Processes that meta does not hear, and those that do not answer where meta says they are."""
    for group in (*case.now.groups, *case.now.delays):
        for one in group["brokers"]:
            if not one["alive"] and not group["retired"]:
                advice = f"{after_death(group, one['name'])}; docs/oncall/lose-a-broker.md"
                yield error(one["name"], "it is away, meta has not heard of it for seconds", advice)
    for node in case.now.nodes:
        if node.alive and node.system is None:
            advice = f"look whether {node.http} is reached from here, and at what it says on standard error"
            yield error(node.name, f"it does not answer at {node.http}", advice)


def in_sync(case: Case) -> Iterator[Finding]:
    """A group whose slaves are all behind loses its service, or messages, with its master."""
    for group in (*case.now.groups, *case.now.delays):
        behind = [one["name"] for one in group["brokers"] if one["alive"] and not one["in_sync"]]
        if group["retired"] or not group["master"]:
            continue
        if len(group["brokers"]) > 1 and len(group["in_sync"]) < 2:
            advice = "do not stop its master; start a slave, or wait until one has caught up"
            yield error(group["group"], "no slave is in sync, and nobody could take over", advice)
        elif behind:
            advice = "it catches up by itself; when this stays, look at its disk and network"
            yield warning(group["group"], f"not in sync: {', '.join(behind)}", advice)


def lone_masters(case: Case) -> Iterator[Finding]:
    """In a cluster where others have slaves, one without is rather a mistake than a wish."""
    live = [group for group in case.now.groups if not group["retired"]]
    without = [group["group"] for group in live if len(group["brokers"]) == 1]
    if without and len(without) < len(live):
        for name in without:
            yield warning(name, "it has no slave, other groups do", "start one; docs/oncall/add-a-broker.md")


def opened(case: Case) -> Iterator[Finding]:
    """Groups that take less than they could, because somebody said so and may have forgotten."""
    for group in case.now.groups:
        name = group["group"]
        if group["retired"]:
            if any(one["alive"] for one in group["brokers"]):
                advice = f"stop its brokers, then `tidemill brokers forget {name} NAME` for each"
                yield warning(name, "it is retired, and its brokers still run", advice)
        elif group["draining"]:
            advice = (
                f"`tidemill brokers drain {name}` says what is left; `tidemill brokers retire {name}` ends it"
            )
            yield warning(name, "it is being drained", advice)
        elif group["allowed"] != "RW":
            yield warning(
                name, f"people made it {group['allowed']}", f"`tidemill brokers state {name} RW` ends that"
            )


def disks(case: Case) -> Iterator[Finding]:
    """Of brokers and delay services, which have other names for it; a lone queue says it of one disk in both ways."""
    for node in case.now.nodes:
        free = _first(node, "tidemill_disk_free_bytes", "tidemill_delay_free_bytes")
        total = _first(node, "tidemill_disk_total_bytes", "tidemill_delay_total_bytes")
        if not total or free is None:
            continue
        percent = 100 * free / total
        said = f"{percent:.1f} % of its disk are free, {_size(free)}"
        advice = "free space outside of the data folder, keep messages for a shorter time, or give it a larger disk"
        if percent < DISK_FULL_PERCENT:
            yield error(node.name, f"it takes no messages: {said}", advice)
        elif percent < DISK_NEAR_PERCENT:
            yield warning(node.name, f"{said}; below {DISK_FULL_PERCENT} % it takes no messages", advice)


def readable(case: Case) -> Iterator[Finding]:
    for node in case.now.nodes:
        if node.number("tidemill_unread_total") or node.number("tidemill_delay_unread_total"):
            advice = "look at the disk, and what the kernel says of it; docs/oncall/lose-a-disk.md"
            yield error(node.name, "its disk has refused to read what was stored", advice)


def files(case: Case) -> Iterator[Finding]:
    for node in _answering(case):
        assert node.system is not None
        opened, most = node.system.files_open, node.system.files_max
        advice = "raise the limit of open files (`ulimit -n`, LimitNOFILE=) and start it again"
        if most and opened > FILES_NEAR * most:
            yield error(node.name, f"{opened:,} of the {most:,} files that it may open are open", advice)
        elif most and most < FILES_FEW:
            yield warning(node.name, f"it may open only {most:,} files, which bounds its connections", advice)


def clocks(case: Case) -> Iterator[Finding]:
    """Against the middle of all, which two machines that agree decide; of one process against this machine."""
    nodes = _answering(case)
    if not nodes:
        return
    ahead = {node.name: node.system.ahead_ms for node in nodes if node.system is not None}
    middle = 0.0 if len(ahead) < 3 else median(ahead.values())
    for node in nodes:
        assert node.system is not None
        apart = node.system.ahead_ms - middle
        if abs(apart) > CLOCKS_APART_MS + node.system.unsure_ms:
            whose = "this machine's" if len(ahead) < 3 else "that of the others"
            word = "ahead of" if apart > 0 else "behind"
            advice = "let NTP or chrony set the clocks: what is for later is delivered by them"
            yield warning(node.name, f"its clock is {abs(apart) / 1000:.1f} s {word} {whose}", advice)


def versions(case: Case) -> Iterator[Finding]:
    by_version: dict[str, list[str]] = {}
    for node in _answering(case):
        assert node.system is not None
        by_version.setdefault(node.system.version, []).append(node.name)
    if len(by_version) > 1:
        said = "; ".join(f"{version}: {', '.join(names)}" for version, names in sorted(by_version.items()))
        yield warning("versions", f"they differ ({said})", "finish the upgrade; docs/oncall/upgrade.md")


def restarted(case: Case) -> Iterator[Finding]:
    """One that is much younger than the others ended of late, and was started again by somebody."""
    nodes = _answering(case)
    ages = {node.name: case.now.at_ms - node.system.began_ms for node in nodes if node.system is not None}
    for name, age in ages.items():
        if 0 <= age < YOUNG_MS < max(ages.values()) - YOUNG_MS:
            advice = "look why it ended, in what it said on standard error"
            yield warning(name, f"it was started {age // 1000} s ago, and others run for longer", advice)


def late(case: Case) -> Iterator[Finding]:
    for node in case.now.nodes:
        seconds, due = node.number("tidemill_delay_lateness_seconds"), node.number("tidemill_delay_due")
        if due and seconds is not None and seconds > LATE_SECONDS:
            advice = "look whether the brokers of their subjects take messages, and at the machine's load"
            yield error(node.name, f"{due:,.0f} messages are due, the last was {seconds:.1f} s late", advice)


def certificates(case: Case) -> Iterator[Finding]:
    """Those of which a fifth is left, or three weeks: they should have been renewed by then."""
    for node in case.now.nodes:
        ends_s, life_s = (
            _first(
                node,
                *(f"tidemill_{service}certificate_{what}_seconds" for service in ("", "delay_", "meta_")),
            )
            for what in ("ends", "life")
        )
        if ends_s is None or life_s is None:
            continue
        left_s = ends_s - case.now.at_ms / 1000
        advice = "renew it, nothing is started again for that; docs/oncall/rotate-certificates.md"
        if left_s <= 0:
            yield error(node.name, "its certificate is over, and nobody connects to it", advice)
        elif left_s < min(life_s * CERTIFICATE_PART, CERTIFICATE_NEAR_SECONDS):
            yield warning(node.name, f"its certificate ends in {_while(left_s)}", advice)


def _first(node: Node, *names: str) -> float | None:
    """The first of these numbers that it says."""
    return next((found for found in map(node.number, names) if found is not None), None)


def _while(seconds: float) -> str:
    return f"{seconds / 86_400:.1f} days" if seconds > 2 * 86_400 else f"{seconds / 3600:.1f} hours"


def _answering(case: Case) -> list[Node]:
    return [node for node in case.now.nodes if node.system is not None]


def _size(count: float) -> str:
    return f"{count / (1 << 30):,.1f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):,.0f} MiB"


CHECKS: tuple[Check, ...] = (
    registered, led, heard, in_sync, lone_masters, opened, disks, readable, certificates, files, clocks, versions,
    restarted, late,
)  # fmt: skip
