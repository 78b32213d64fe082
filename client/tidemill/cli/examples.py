"""Lines to copy, for commands of which a person would want some: shown below their help, and parsed by a test."""

from __future__ import annotations

from collections.abc import Mapping

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "up": ("up", "up -f queue.yaml --data /var/lib/tidemill", "up --brokers 3 --slaves 1"),
    "apply": ("apply -f orders.yaml", "apply -f orders.yaml -o json"),
    "doctor": ("doctor", "doctor --over 0 --strict -o json"),
    "top": ("top", "top --once | head -20"),
    "log-level": ("log-level", "log-level debug --for 600 --broker g0-0"),
    "send": (
        "send hello 'first message'",
        "send order.created --file order.json --key o-4711 --tag vip",
        "send order.created --lines orders.txt",
        "send reminder 'call back' --delay 90m",
        "send report now --cron '0 9 * * mon-fri' --timer-key daily",
    ),
    "consume": (
        "consume hello --group demo --from earliest --count 1",
        "consume 'order.*' --group billing -o json",
        "consume order.created --group billing --exec './handle.sh'",
    ),
    "browse": ("browse order.created --newest -n 5", "browse order.created --from 2026-09-01"),
    "find": (
        "find 019a2f3b7c5d00003f7a947ccde48a7b-0",
        "find --key o-4711",
        "find --subject order.created --from 2026-09-01T08:00:00Z --to 2026-09-01T09:00:00Z",
    ),
    "why": ("why 019a2f3b7c5d00003f7a947ccde48a7b-0",),
    "worker": ("worker shop:worker", "worker shop:worker --processes 4 --metrics-port 9100"),
    "expand": ("expand order.created --partitions 3", "expand order.created --to g1"),
    "subjects remove": ("subjects remove order.created --if-empty --yes",),
    "groups seek": (
        "groups seek order.created billing --to earliest --dry-run",
        "groups seek order.created billing --to 2026-09-01T08:00:00Z --yes",
    ),
    "dead list": ("dead list order.created -g billing",),
    "dead redrive": ("dead redrive order.created -g billing --reason timeout --rate 10 --yes",),
    "timers list": ("timers list reminder --prefix customer-7",),
    "timers cancel": (
        "timers cancel 019a2f3b7c5d00003f7a947ccde48a7b-0",
        "timers cancel --subject report --timer-key daily",
    ),
    "timers reschedule": ("timers reschedule --subject report --timer-key daily --delay 2h",),
    "outbox relay": ("outbox relay --url sqlite:///shop.db",),
    "grants set": (
        "grants set shop --to token:shop --on 'order.*' --allow send,browse",
        "grants set billing --to token:billing --on order.created --allow consume --group billing",
    ),
    "tokens create": ("tokens create shop --expires 90d > shop.token",),
    "brokers handover": ("brokers handover g0", "brokers handover g0 --to g0-1"),
    "inspect log": ("inspect log tidemill-data --verify",),
    "bench produce": ("bench produce --count 100000 --size 1024",),
}
