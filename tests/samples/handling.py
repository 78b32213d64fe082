"""A worker on a queue in memory: what it was told, and what it counted."""

from __future__ import annotations

from tidemill.testing import Client, running


class Listening:
    """Notes the commands that a queue in memory is told."""

    def __init__(self, mq: Client) -> None:
        self.said = []
        self._handle = mq.broker.handle
        mq.broker.handle = self.handle

    def handle(self, peer, correlation, command):
        self.said.append(command)
        self._handle(peer, correlation, command)

    def of(self, kind):
        return [command for command in self.said if isinstance(command, kind)]


def counts(worker):
    """Those that are not zero."""
    total = worker.statistics().total
    names = (
        "handled",
        "failed",
        "retried",
        "rejected",
        "timed_out",
        "filtered",
        "skipped",
        "released",
        "lost",
        "stuck",
    )
    return {name: getattr(total, name) for name in names if getattr(total, name)}


async def handle_all(worker, *bodies, subject="a", **extras):
    """Send, and wait until all is settled; what was said, and the errors."""
    async with Client() as mq:
        said = Listening(mq)
        async with running(worker, mq) as run:
            for body in bodies:
                await mq.send(subject, body, **extras)
            await run.idle()
            return said, run.errors
