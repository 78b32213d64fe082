"""What those say who know a queue on Kubernetes: meta of its brokers, the operator of itself.

Pods are asked at their own addresses, which the machine reaches.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.request import urlopen

from cluster.queue import OPERATORS, Object, Queue

UNKNOWN: Object = {"brokers": [{"name": "", "alive": False, "in_sync": False}]}
"""Of a group, while meta does not answer."""


def row(queue: Queue, group: str) -> Object:
    """What meta has of a group; the machine reaches pods by their addresses."""
    address = queue.get("pod", "queue-meta-0")["status"].get("podIP")
    if not address:
        return UNKNOWN
    try:
        with urlopen(f"http://{address}:7401/v1/brokers", timeout=5) as answer:
            rows: list[Object] = json.load(answer)
    except OSError:
        return UNKNOWN  # it is just beginning
    return next(one for one in rows if one["group"] == group)


def leader(queue: Queue, group: str) -> str:
    """Who leads by meta's word, and lives."""
    found = row(queue, group)
    alive = {str(broker["name"]) for broker in found["brokers"] if broker["alive"]}
    return str(found.get("master", "")) if found.get("master") in alive else ""


def operators(queue: Queue) -> list[Object]:
    found: list[Object] = queue.cluster.json("get", "pods", "-n", OPERATORS)["items"]
    return [one for one in found if "deletionTimestamp" not in one["metadata"]]


def operator(queue: Queue) -> str:
    """The pod whose process runs; nothing, when none does."""
    for one in operators(queue):
        if any("running" in status["state"] for status in one["status"].get("containerStatuses", ())):
            return str(one["metadata"]["name"])
    return ""


def node_of_operator(queue: Queue) -> str:
    (found,) = operators(queue)
    return str(found["spec"]["nodeName"])


def page(queue: Queue) -> str:
    (found,) = operators(queue)
    with urlopen(f"http://{found['status']['podIP']}:8080/metrics", timeout=5) as answer:
        return str(answer.read().decode())


def writes(queue: Queue) -> float:
    """How many requests have changed anything; those that renew its lease are the only ones that replace."""
    lines = [
        line for line in page(queue).splitlines() if line.startswith("tidemill_operator_kube_requests_total{")
    ]
    assert lines, "it counts no requests"
    return sum(float(line.rpartition(" ")[2]) for line in lines
               if any(f'verb="{verb}"' in line for verb in ("patch", "post", "delete")))  # fmt: skip


def seconds_of_processor(queue: Queue, pod: str) -> float:
    """That the pod's one process has taken, with all its threads."""
    text = queue.cluster.ask("exec", "-n", OPERATORS, pod, "--", "cat", "/proc/1/stat")
    words: list[Any] = text.rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / 100
