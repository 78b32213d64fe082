"""The two peers that Debian packs: RabbitMQ and Redis, run in the folder where their packages are unpacked.

`chroot` gives them the libraries they were built with, and keeps the machine's own packages, services and users
out of it. Their data lies in a folder that is mounted into it, where only this run sees the mount.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import cache
import processes
from peers.base import INSIDE, Durability, Peer, Server, Session, Step, python_steps

PORT_QUEUES = 15672
PORT_STREAMS = 15552
PORT_MAPPER = 14369
PORT_REDIS = 16379
DATA = "/data"
LOCALE = {"LANG": "C", "LC_ALL": "C"}
"""The only one that is there; Redis refuses to start with another."""
SETTINGS = f"""\
listeners.tcp.local = 127.0.0.1:{PORT_QUEUES}
stream.listeners.tcp.local = 127.0.0.1:{PORT_STREAMS}
stream.advertised_host = 127.0.0.1
stream.advertised_port = {PORT_STREAMS}
distribution.listener.interface = 127.0.0.1
vm_memory_high_watermark.absolute = 6GB
disk_free_limit.absolute = 1GB
log.console = true
log.console.level = warning
log.file = false
collect_statistics_interval = 30000
"""


class Chrooted(Peer):
    def install(self) -> None:
        super().install()
        cache.debian()
        cache.python()

    def empty(self) -> None:
        super().empty()
        (self.folder / "data").mkdir()

    def inside(self, *command: str) -> tuple[str, ...]:
        return ("chroot", str(cache.debian()), *command)

    def mount(self) -> None:
        root = cache.debian()
        if os.environ.get(INSIDE) is None:
            raise cache.CannotInstall("mounts of its own are needed; start through bench/run.py")
        for source, target in (
            (Path("/proc"), "proc"),
            (Path("/dev"), "dev"),
            (self.folder / "data", "data"),
        ):
            # What an earlier start left there goes first. run.py gave this run mounts of its own: none outlives it.
            if str(root / target) in Path("/proc/self/mountinfo").read_text().split():
                subprocess.run(["umount", "--lazy", root / target], check=True, stdin=subprocess.DEVNULL)
            subprocess.run(["mount", "--bind", source, root / target], check=True, stdin=subprocess.DEVNULL)


class Redis(Chrooted):
    name = "redis"

    def install(self) -> None:
        super().install()
        cache.classes("redis", "RedisPeer")

    def version(self) -> str:
        return cache.debian_version("redis-server")

    def launch(self, server: Server, session: Session) -> None:
        self.mount()
        fsync = "always" if session.durability is Durability.FSYNC else "everysec"
        server.restart_clock()
        command = self.inside(
            "/usr/bin/redis-server", "--bind", "127.0.0.1", "--port", str(PORT_REDIS), "--dir", DATA, "--save", "",
            "--appendonly", "yes", "--appendfsync", fsync, "--auto-aof-rewrite-percentage", "0", "--daemonize", "no",
        )  # fmt: skip
        server.spawn(command, LOCALE)
        processes.wait_for_port(PORT_REDIS)
        server.wait_for_text("Ready to accept")

    def steps(self, session: Session) -> list[Step]:
        command = (*self.java("redis", "RedisPeer"), f"port={PORT_REDIS}")
        ack = frozenset({"ack"})
        # The driver waits for each pipeline of 500, so a window above that changes nothing.
        one = Step("a", "pipelines of 500", 1024, command, "produce", "stream", {"window": 10_000}, ack)
        found: list[Step] = []
        for size in (1024, 100):
            sized = replace(one, size=size, topic=f"stream-{size}")
            if session.durability is Durability.FSYNC:
                found.append(replace(sized, workload="b"))
                continue
            found += [
                sized,
                replace(sized, workload="c", variant="group, XACK", mode="consume", options={"group": "g"}),
            ]
        found.append(replace(one, workload="d", variant="XADD", mode="sync", topic="sync"))
        if session.durability is Durability.FSYNC:
            return found
        found.append(replace(one, workload="e", variant="XADD, group", mode="e2e", topic="e2e"))
        found += python_steps("redis-py", (*self.python("redis"), f"port={PORT_REDIS}"), tags="ack")
        found.append(
            replace(one, workload="g", variant="one stream each", size=100, mode="topics", topic="many")
        )
        return found


class RabbitMQ(Chrooted):
    name = "rabbitmq"

    def install(self) -> None:
        super().install()
        cache.classes("rabbitmq", "RabbitPeer", "StreamPeer")

    def version(self) -> str:
        return cache.debian_version("rabbitmq-server")

    def launch(self, server: Server, session: Session) -> None:
        del session  # The kind of queue decides: quorum queues sync, classic queues and streams do not.
        self.mount()
        data = self.folder / "data"
        (data / "enabled_plugins").write_text("[rabbitmq_stream].\n")
        (data / "rabbitmq.conf").write_text(SETTINGS)
        environment = {
            "PATH": "/usr/sbin:/usr/bin",
            "HOME": DATA,
            **LOCALE,
            "HOSTNAME": "localhost",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(PORT_MAPPER),
            "RABBITMQ_NODENAME": "bench@localhost",
            "RABBITMQ_MNESIA_BASE": f"{DATA}/db",
            "RABBITMQ_LOG_BASE": f"{DATA}/log",
            "RABBITMQ_CONFIG_FILE": f"{DATA}/rabbitmq.conf",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{DATA}/enabled_plugins",
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        }
        server.restart_clock()
        # Erlang would start its port mapper as a daemon that outlives everything; so it is there before.
        server.spawn(self.inside("/usr/bin/epmd"), environment, helper=True)
        processes.wait_for_port(PORT_MAPPER)
        server.spawn(self.inside("/usr/lib/rabbitmq/bin/rabbitmq-server"), environment)
        processes.wait_for_port(PORT_QUEUES)
        processes.wait_for_port(PORT_STREAMS)

    def steps(self, session: Session) -> list[Step]:
        queue = (*self.java("rabbitmq", "RabbitPeer", "StreamPeer"), f"port={PORT_QUEUES}")
        kind = "quorum" if session.durability is Durability.FSYNC else "classic"
        options: dict[str, object] = {"window": 2000, "type": kind}
        one = Step("a", f"{kind} queue", 1024, queue, "produce", kind, options, frozenset({"ack"}))
        found: list[Step] = []
        for size in (1024, 100):
            sized = replace(one, size=size, topic=f"{kind}-{size}")
            if session.durability is Durability.FSYNC:
                found.append(replace(sized, workload="b"))
            else:
                found += [sized, replace(sized, workload="c", mode="consume")]
        found.append(replace(one, workload="d", mode="sync", topic="sync"))
        if session.durability is Durability.FSYNC:
            return found
        found.append(replace(one, workload="e", mode="e2e", topic="e2e"))
        found += self._stream_steps()
        found += python_steps("pika", (*self.python("pika"), f"port={PORT_QUEUES}"), tags="ack", sync=False)
        found += python_steps(
            "rstream", (*self.python("rstream"), f"port={PORT_STREAMS}"), tags="log", sync=False
        )
        found.append(
            replace(one, workload="g", variant="classic queues", size=100, mode="topics", topic="many")
        )
        return found

    def _stream_steps(self) -> list[Step]:
        command = (*self.java("rabbitmq", "StreamPeer", "RabbitPeer"), f"port={PORT_STREAMS}")
        log = Step("a", "stream", 1024, command, "produce", "log", {"window": 10_000}, frozenset({"log"}))
        found: list[Step] = []
        for size in (1024, 100):
            sized = replace(log, size=size, topic=f"log-{size}")
            found += [sized, replace(sized, workload="c", mode="consume", options={"group": "log"})]
        found.append(replace(log, workload="d", mode="sync", topic="log-sync"))
        found.append(replace(log, workload="e", mode="e2e", topic="log-e2e"))
        return found
