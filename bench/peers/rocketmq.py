"""RocketMQ 5 from Maven Central: one name server, one broker."""

from __future__ import annotations

from dataclasses import replace

import cache
import processes
from peers.base import JVM_SERVER, REPLICATED, Durability, Peer, Server, Session, Step

PORT_NAMES = 19876
PORT_BROKER = 20911
PORT_SLAVE = 20921
SETTINGS = """\
brokerClusterName=bench
brokerName=one
brokerId={number}
brokerIP1=127.0.0.1
listenPort={broker}
bindAddress=127.0.0.1
haListenPort={ha}
namesrvAddr=127.0.0.1:{names}
brokerRole={role}
inSyncReplicas={replicas}
flushDiskType={flush}
storePathRootDir={folder}/store-{number}
storePathCommitLog={folder}/store-{number}/commitlog
autoCreateTopicEnable=true
maxTransferCountOnMessageInMemory=1024
maxTransferBytesOnMessageInMemory=4194304
maxTransferCountOnMessageInDisk=1024
maxTransferBytesOnMessageInDisk=4194304
sendThreadPoolQueueCapacity=100000
waitTimeMillsInSendQueue=5000
osPageCacheBusyTimeOutMills=5000
mappedFileSizeTimerLog=104857600
enableControllerMode=false
"""
PACKAGE = "org.apache.rocketmq"
LOGGING = """\
<configuration>
  <appender name="console" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %p %c - %m%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="console"/></root>
</configuration>
"""
OPENED = tuple(
    f"--add-{what}=java.base/{package}=ALL-UNNAMED"
    for what, package in (
        ("exports", "jdk.internal.ref"), ("exports", "sun.nio.ch"), ("opens", "java.nio"), ("opens", "sun.nio.ch"),
        ("opens", "java.lang"), ("opens", "java.util"),
    )
)  # fmt: skip


class RocketMQ(Peer):
    name = "rocketmq"

    def install(self) -> None:
        super().install()
        cache.classes("rocketmq", "RocketPeer")

    def version(self) -> str:
        return next(cache.jars("rocketmq").glob("rocketmq-broker-*.jar")).stem.removeprefix(
            "rocketmq-broker-"
        )

    def sessions(self) -> list[Session]:
        return [*super().sessions(), REPLICATED]

    def launch(self, server: Server, session: Session) -> None:
        names = self.folder / "names.conf"
        names.write_text(f"listenPort={PORT_NAMES}\nbindAddress=127.0.0.1\n")
        java = self._java()
        server.restart_clock()
        server.spawn(
            (*java[:1], "-Xms256m", "-Xmx256m", *java[1:], f"{PACKAGE}.namesrv.NamesrvStartup", "-c", names),
            self._environment(),
            helper=True,
        )
        processes.wait_for_port(PORT_NAMES)
        self._broker(server, session, 0)
        if session == REPLICATED:
            self._broker(server, session, 1)

    def _environment(self) -> dict[str, str]:
        return {"ROCKETMQ_HOME": str(self.folder)}

    def _broker(self, server: Server, session: Session, number: int) -> None:
        """The master, number 0, or its slave."""
        role = "SLAVE" if number else "SYNC_MASTER" if session == REPLICATED else "ASYNC_MASTER"
        port = PORT_SLAVE if number else PORT_BROKER
        flush = "SYNC_FLUSH" if session.durability is Durability.FSYNC else "ASYNC_FLUSH"
        settings = SETTINGS.format(
            broker=port, ha=port + 1, names=PORT_NAMES, flush=flush, folder=self.folder, number=number, role=role,
            replicas=2 if session == REPLICATED else 1,
        )  # fmt: skip
        file = self.folder / f"broker-{number}.conf"
        file.write_text(settings)
        java = self._java()
        server.spawn(
            (*java[:1], *JVM_SERVER, "-XX:MaxDirectMemorySize=2g", *java[1:],
             f"{PACKAGE}.broker.BrokerStartup", "-c", file),
            self._environment(),
        )  # fmt: skip
        processes.wait_for_port(port)
        server.wait_for_text("boot success. serializeType=JSON and name server", times=number + 1)

    def _java(self) -> tuple[str, ...]:
        logging = self.folder / "logback.xml"
        logging.write_text(LOGGING)
        return ("java", *OPENED, f"-Drmq.logback.configurationFile={logging}", f"-Duser.home={self.folder}",
                f"-Drocketmq.home.dir={self.folder}", "-cp", f"{cache.jars('rocketmq')}/*")  # fmt: skip

    def steps(self, session: Session) -> list[Step]:
        java = self.java("rocketmq", "RocketPeer")
        quiet = (f"-Drmq.logback.configurationFile={self.folder}/logback.xml", f"-Duser.home={self.folder}")
        command = (java[0], *quiet, *java[1:], f"port={PORT_NAMES}", f"broker={PORT_BROKER}")
        ack = frozenset({"ack"})
        if session == REPLICATED:
            options = {"window": 10_000, "batch": 64}
            both = Step("r", "SYNC_MASTER, batches of 64", 1024, command, "produce", "both", options, ack)
            return [replace(both, size=size, topic=f"both-{size}") for size in (1024, 100)]
        one = Step("a", "async send", 1024, command, "produce", "one", {"window": 2000}, ack)
        batch = replace(one, variant="batches of 64", options={"window": 10_000, "batch": 64})
        found: list[Step] = []
        for size in (1024, 100):
            sized = replace(one, size=size, topic=f"one-{size}")
            batched = replace(batch, size=size, topic=f"batch-{size}")
            if session.durability is Durability.FSYNC:
                found += [replace(sized, workload="b"), replace(batched, workload="b")]
                continue
            drain = replace(
                batched, workload="c", variant="push consumer", mode="consume", options={"group": "drain"}
            )
            found += [sized, batched, drain]
        found.append(replace(one, workload="d", mode="sync", topic="sync"))
        if session.durability is Durability.FSYNC:
            return found
        later = replace(
            one, workload="t-produce", variant="timer messages", options={"window": 2000, "later": 7200}
        )
        found += [replace(later, size=size, topic=f"later-{size}") for size in (1024, 100)]
        found.append(replace(one, workload="t-due", variant="timer messages", mode="due", topic="due"))
        found.append(replace(one, workload="e", mode="e2e", topic="e2e"))
        found.append(
            replace(one, workload="g", variant="one queue each", size=100, mode="topics", topic="many")
        )
        return found
