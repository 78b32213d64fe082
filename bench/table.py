"""The results as one Markdown table a workload, each with the ratio to the best peer, and the goals at the end."""

from __future__ import annotations

from collections.abc import Iterable

import goals
from measure import Row
from results import Results

OWN = "tidemill"
TITLES = {
    "a": "a. produce, page cache",
    "b": "b. produce, fsync before the answer",
    "c": "c. drain of the backlog",
    "d": "d. one in flight",
    "e": "e. end to end at 5,000 msg/s, open loop",
    "f-produce": "f. Python clients: produce, page cache",
    "f-consume": "f. Python clients: drain",
    "f-sync": "f. Python clients: one in flight",
    "g": "g. 5,000 topics in turns",
    "h": "h. start and rest",
    "r": "r. produce, on two servers before the answer",
    "t-produce": "t. for later: scheduling, due in two hours",
    "t-due": "t. for later: lateness of 5,000 msg/s, scheduled some seconds before",
}
SAME_AS = {"f-produce": "a", "f-consume": "c", "f-sync": "d"}
"""tidemill's client is a Python client anyway: its rows are repeated among those."""
COLUMNS: tuple[tuple[str, str, int, int], ...] = (
    # field, title, digits, and +1 where more is better, -1 where less is, 0 where no ratio helps
    ("rate", "msg/s", 0, 1),
    ("mb_per_s", "MB/s", 1, 0),
    ("p50_ms", "p50 ms", 3, -1),
    ("p99_ms", "p99 ms", 3, -1),
    ("least_ms", "least ms", 1, 0),
    ("most_ms", "most ms", 1, -1),
    ("server_cpu_s_per_m", "server CPU s/M", 2, -1),
    ("client_cpu_s_per_m", "client CPU s/M", 2, -1),
    ("rss_mb", "RSS MB", 0, -1),
    ("ceiling", "ceiling msg/s", 0, 0),
    ("create_s", "create s", 1, 0),
    ("first_touch_s", "first touch s", 2, -1),
    ("startup_s", "start s", 2, -1),
    ("idle_cpu_percent", "idle CPU %", 1, 0),
    ("load", "load", 2, 0),
    ("foreign_cores", "other cores", 2, 0),
)


def short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.3f}" if abs(value) < 100 else f"{value:,.0f}"
    return " ".join(str(value).split())[:300]


def render(results: Results) -> str:
    rows = [{**row, **_derived(row, results)} for row in results.rows]
    versions = ", ".join(f"{peer} {version}" for peer, version in results.peers.items())
    last = results.runs[-1] if results.runs else {}
    machine = ", ".join(f"{name} {value}" for name, value in results.machine.items())
    head = f"""\
# tidemill beside its peers, {last.get("at", "")}, commit {last.get("commit", "")}

Machine: {machine}.
Versions: {versions}.
What stands in one table ran on this machine, with the same bodies and the same durability; `bench/README.md` says how
to read it. Rows marked DISTURBED had others on the cores; rows marked quick ran too short to be compared."""
    parts = [head]
    for workload, title in TITLES.items():
        parts += [_section(title, group) for group in _groups(rows, workload)]
    parts.append("## Goals\n\n" + goals.render(rows))
    return "\n\n".join(parts)


def _derived(row: Row, results: Results) -> Row:
    found: Row = {}
    if "rate" in row:
        found["mb_per_s"] = row["rate"] * row["size"] / 1e6
        cost = row.get("server_cpu_s_per_m", 0) + row.get("client_cpu_s_per_m", 0)
        if cost and row["workload"] in {"a", "b", "c", "g", "r", "f-produce", "f-consume"}:
            found["ceiling"] = results.cores / cost * 1e6
    return found


def _groups(rows: list[Row], workload: str) -> Iterable[list[Row]]:
    """The rows that may be compared: one workload, one size, one durability."""
    found = [row for row in rows if row["workload"] == workload]
    if found and workload in SAME_AS:
        own = [row for row in rows if row["peer"] == OWN and row["workload"] == SAME_AS[workload]]
        found += [{**row, "workload": workload} for row in own]
    keys = sorted({(row["durability"] == "fsync", -row["size"]) for row in found})
    for synced, size in keys:
        group = [row for row in found if (row["durability"] == "fsync", -row["size"]) == (synced, size)]
        if any(row["peer"] != OWN for row in group) or workload not in SAME_AS:
            yield sorted(group, key=lambda row: (-row.get("rate", 0), row.get("startup_s", 0)))


def _section(title: str, group: list[Row]) -> str:
    size = f", {group[0]['size']:,} B" if group[0]["size"] else ""
    columns = [column for column in COLUMNS if any(column[0] in row for row in group)]
    lines = [
        f"## {title}{size}, {group[0]['durability']}",
        "",
        "| peer | variant | " + " | ".join(column[1] for column in columns) + " | note |",
        "|---|---|" + "---:|" * len(columns) + "---|",
    ]
    for row in group:
        cells = [f"{row[name]:,.{digits}f}" if name in row else "" for name, _, digits, _ in columns]
        lines.append(f"| {row['peer']} | {row['variant']} | {' | '.join(cells)} | {_note(row)} |")
    ratios = [_ratio(group, name, sign) for name, _, _, sign in columns]
    if any(ratios):
        lines.append(f"| **tidemill / best peer** | | {' | '.join(ratios)} | |")
    return "\n".join(lines)


def _ratio(group: list[Row], name: str, sign: int) -> str:
    best = max if sign > 0 else min
    own = [row[name] for row in group if row["peer"] == OWN and row.get(name)]
    others = [row[name] for row in group if row["peer"] != OWN and row.get(name)]
    return f"**{best(own) / best(others):.2f}**" if sign and own and others else ""


def _note(row: Row) -> str:
    notes: list[str] = []
    if row.get("disturbed"):
        notes.append("DISTURBED")
    if row.get("quick"):
        notes.append("quick")
    if "error" in row:
        notes.append("failed: " + short(row["error"])[-120:].replace("|", "/"))
    if row.get("errors"):
        notes.append(f"{row['errors']} errors {row.get('first_error', '')[:80]}".replace("|", "/"))
    if row.get("received", 0) < row.get("sent", 0):
        notes.append(f"received {row['received']:,.0f} of {row['sent']:,.0f}")
    return ", ".join(notes)
