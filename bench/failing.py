"""What a retry costs: every message of a backlog fails once, then all are delivered again. `python -m bench.failing`

The broker's CPU seconds of the second delivery beside those of the first one, and the bytes of bodies that were copied.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path

from tidemill import Client

sys.path.insert(0, str(Path(__file__).parent))
from processes import cpu_seconds
from servers import Running, broker_command

MANIFEST = """apiVersion: tidemill.dev/v1alpha1
kind: Subject
metadata: {name: failing}
spec: {config: [{name: durability, value: low}]}
"""


def written(folder: Path) -> int:
    """Bytes of the message log."""
    return sum(file.stat().st_size for file in (folder / "message").glob("*.log"))


async def deliver(mq: Client, count: int, failing: bool) -> None:
    """Take ``count`` messages and settle them."""
    async with mq.consume("failing", group="g", start="earliest") as messages:
        async for batch in messages.batches():
            if failing:
                await batch.nack(delay=1)
            else:
                await batch.ack()
            count -= len(batch)
            if count <= 0:
                return


async def measure(server: str, pid: int, folder: Path, count: int, size: int) -> dict[str, object]:
    """Both deliveries."""
    pool = [os.urandom(size) for _ in range(64)]
    async with Client(server) as mq:
        await mq.send_many("failing", [pool[index % 64] for index in range(count)])
        bytes_before, began = written(folder), cpu_seconds(pid)
        await deliver(mq, count, failing=True)
        first = cpu_seconds(pid) - began
        began = cpu_seconds(pid)
        await deliver(mq, count, failing=False)
        second = cpu_seconds(pid) - began
    return {
        "messages": count, "size": size, "first_cpu_s": round(first, 3), "second_cpu_s": round(second, 3),
        "ratio": round(second / first, 2), "body_bytes_copied": written(folder) - bytes_before,
    }  # fmt: skip


def main() -> None:
    """Run a broker, measure, print one object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=100)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        manifest, data = Path(folder, "m.yaml"), Path(folder, "data")
        manifest.write_text(MANIFEST)
        with Running(broker_command(data, manifest)) as broker:
            figures = measure(broker.server, broker.pid, data, arguments.messages, arguments.size)
            print(json.dumps(asyncio.run(figures)))


if __name__ == "__main__":
    main()
