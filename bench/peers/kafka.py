"""Kafka 4 from Maven Central: one broker that is its own controller."""

from __future__ import annotations

from dataclasses import replace

import cache
import processes
from peers.base import JVM_SERVER, REPLICATED, Durability, Peer, Server, Session, Step, python_steps

PORT = 19092
PORT_CONTROLLER = 19093
SETTINGS = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:{controller}
log.dirs={folder}/logs
num.partitions=1
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
"""
PORT_SECOND = 19094
CLUSTER = "dGlkZW1pbGwtYmVuY2gtMQ"
SECOND = """\
process.roles=broker
node.id=2
listeners=PLAINTEXT://127.0.0.1:{port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:{controller}
log.dirs={folder}/logs-2
"""
FLUSH_EACH_BATCH = "log.flush.interval.messages=1\n"
LOGGING = """\
status=error
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d %p %m%n
rootLogger.level=info
rootLogger.appenderRef.console.ref=console
"""
QUIET = "-Dlog4j2.level=ERROR"


class Kafka(Peer):
    name = "kafka"

    def install(self) -> None:
        super().install()
        cache.classes("kafka", "KafkaPeer")
        cache.python()

    def version(self) -> str:
        return next(cache.jars("kafka").glob("kafka-clients-*.jar")).stem.removeprefix("kafka-clients-")

    def sessions(self) -> list[Session]:
        return [*super().sessions(), REPLICATED]

    def launch(self, server: Server, session: Session) -> None:
        settings = SETTINGS.format(port=PORT, controller=PORT_CONTROLLER, folder=self.folder)
        if session.durability is Durability.FSYNC:
            settings += FLUSH_EACH_BATCH
        file = self.folder / "server.properties"
        file.write_text(settings)
        logging = self.folder / "log4j2.properties"
        logging.write_text(LOGGING)
        java = ("java", *JVM_SERVER, "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
                f"-Dlog4j2.configurationFile={logging}", "-cp", f"{cache.jars('kafka')}/*")  # fmt: skip
        cache.run(*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", file)
        server.restart_clock()
        server.spawn((*java, "kafka.Kafka", file))
        processes.wait_for_port(PORT)
        server.wait_for_text("Kafka Server started")
        if session == REPLICATED:
            second = self.folder / "second.properties"
            second.write_text(SECOND.format(port=PORT_SECOND, controller=PORT_CONTROLLER, folder=self.folder))
            cache.run(*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", second)
            server.spawn((*java, "kafka.Kafka", second))
            processes.wait_for_port(PORT_SECOND)

    def steps(self, session: Session) -> list[Step]:
        java = self.java("kafka", "KafkaPeer")
        java = (java[0], QUIET, *java[1:], f"port={PORT}")
        produce = Step(
            "a", "java client", 1024, java, "produce", "log", {"window": 10_000}, frozenset({"log"})
        )
        if session == REPLICATED:
            options = {"window": 10_000, "acks": "all", "replicas": 2}
            both = replace(produce, workload="r", variant="java client, acks=all", options=options)
            return [replace(both, size=size, topic=f"both-{size}") for size in (1024, 100)]
        sync = replace(produce, workload="d", mode="sync", topic="sync")
        found: list[Step] = []
        for size in (1024, 100):
            sized = replace(produce, size=size, topic=f"log-{size}")
            if session.durability is Durability.FSYNC:
                found.append(replace(sized, workload="b"))
                continue
            drain = replace(sized, workload="c", mode="consume")
            found += [
                sized,
                replace(drain, options={"group": "plain"}),
                replace(
                    drain,
                    variant="share group",
                    options={"group": "share", "share": 1},
                    tags=frozenset({"ack"}),
                ),
            ]
        found.append(sync)
        if session.durability is Durability.FSYNC:
            return found
        found.append(replace(sync, workload="e", mode="e2e", topic="e2e"))
        confluent = (*self.python("confluent"), f"port={PORT}")
        aiokafka = (*self.python("aiokafka"), f"port={PORT}")
        found += python_steps("confluent-kafka", confluent, tags="log")
        found += python_steps("aiokafka", aiokafka, tags="log")
        many = replace(
            produce, workload="g", variant="one partition each", size=100, mode="topics", topic="many"
        )
        found.append(replace(many, options={"window": 10_000, "batch": 16_384}))
        return found
