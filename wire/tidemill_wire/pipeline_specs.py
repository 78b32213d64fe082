"""What the specs of an Archive and a Replay may hold: messages into files, and out of them to where they are wanted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from tidemill_wire import limits
from tidemill_wire.cron import EXPRESSION_CHARS_MAX, FIELDS, NICKNAMES, parse_cron
from tidemill_wire.group_specs import SubjectRef
from tidemill_wire.schema import (
    Block,
    Choice,
    Items,
    Labels,
    Number,
    Part,
    Rule,
    Size,
    Text,
    Time,
    parse_timestamp,
)
from tidemill_wire.specs import ANOTHER_CLUSTER, NAME_MEANS, NAME_PATTERN, YEAR_SECONDS, ClusterRef
from tidemill_wire.workload_specs import OBJECT_NAME_MEANS, OBJECT_NAME_PATTERN, Image, Scheduling, SecretRef

DAY_SECONDS = 24 * 3600
AGAIN = "a replay is done once, so make a new one"
URI_PATTERN = r"[a-z][a-z0-9]{0,15}://[^ ?#]+"
URI_MEANS = "a folder such as s3a://bucket/prod"
CRON_MEANS = "minute, hour, day, month and weekday, as in '15 * * * *', or @daily"


def _cron_pattern() -> str:
    """Five fields, as far as a pattern can say; ``parse_cron`` knows the rest."""
    numbers = ("[0-5]?[0-9]", "[01]?[0-9]|2[0-3]", "0?[1-9]|[12][0-9]|3[01]", "0?[1-9]|1[0-2]", "[0-7]")
    fields: list[str] = []
    for described, number in zip(FIELDS, numbers, strict=True):
        one = f"({'|'.join((number, *described.names))})"
        span = rf"(\*|{one}(-{one})?)(/[0-9]+)?"
        fields.append(f"{span}(,{span})*")
    return f"({'|'.join(NICKNAMES)})|{' +'.join(fields)}"


@dataclass(frozen=True, slots=True)
class LabelSelector(Block):
    match_labels: Annotated[tuple[tuple[str, str], ...], Labels("Labels that it must have.", 16, 63)]


@dataclass(frozen=True, slots=True)
class ArchiveSource(Block):
    subjects: Annotated[
        tuple[SubjectRef, ...],
        Items("Subject objects.", Part("One of them.", SubjectRef), 1, 256, key="name"),
    ] = ()
    selector: Annotated[
        LabelSelector | None, Part("Or those with these labels, also in the future.", LabelSelector)
    ] = None
    read_from: Annotated[
        str,
        Choice("Which brokers are read; Slave: a master only where there is no slave.", ("Slave", "Master")),
    ] = "Slave"

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule("has(self.subjects) != has(self.selector)", "write one of subjects and selector"),
    )

    def conflict(self) -> tuple[str, str] | None:
        if bool(self.subjects) == (self.selector is not None):
            return "", f"says {'both' if self.subjects else 'neither'}: write one of subjects and selector"
        return None


@dataclass(frozen=True, slots=True)
class ArchiveDestination(Block):
    uri: Annotated[
        str,
        Text(
            "The folder that holds the archive.",
            URI_PATTERN,
            1024,
            URI_MEANS,
            instead="make a new archive for the other folder",
        ),
    ]
    format: Annotated[
        str,
        Choice(
            "What the files are.",
            ("Parquet", "Delta"),
            instead="make a new archive for the other format",
        ),
    ] = "Parquet"
    compression: Annotated[str, Choice("How they are compressed.", ("Zstd", "Snappy", "None"))] = "Zstd"
    credentials: Annotated[
        SecretRef | None, Part("The Secret with the keys to that folder; none when absent.", SecretRef)
    ] = None


@dataclass(frozen=True, slots=True)
class ArchiveWindow(Block):
    safety_lag_seconds: Annotated[
        int, Number("What is younger is left for the next run.", 0, DAY_SECONDS)
    ] = 300
    max_span_seconds: Annotated[int, Number("How much time one run archives at most.", 60, YEAR_SECONDS)] = (
        DAY_SECONDS
    )


@dataclass(frozen=True, slots=True)
class History(Block):
    successful: Annotated[int, Number("Runs kept that went well.", 0, 100)] = 3
    failed: Annotated[int, Number("Runs kept that failed.", 0, 100)] = 3
    ttl_seconds: Annotated[int, Number("For how long a run is kept.", 60, YEAR_SECONDS)] = 7 * DAY_SECONDS


@dataclass(frozen=True, slots=True)
class SparkDriver(Block):
    cores: Annotated[int, Number("Its processors.", 1, 64)] = 1
    memory: Annotated[int, Size("Its memory.", 512 * limits.MIB)] = limits.GIB
    memory_overhead: Annotated[int, Size("Its memory beside the JVM, Python included.")] = 512 * limits.MIB


@dataclass(frozen=True, slots=True)
class SparkExecutor(Block):
    instances: Annotated[int, Number("How many there are.", 1, 1000)] = 2
    cores: Annotated[int, Number("The processors of each.", 1, 64)] = 2
    memory: Annotated[int, Size("The memory of each.", 512 * limits.MIB)] = 2 * limits.GIB
    memory_overhead: Annotated[int, Size("Memory beside the JVM, Python included.")] = limits.GIB


@dataclass(frozen=True, slots=True)
class SparkConf(Block):
    name: Annotated[
        str,
        Text(
            "A property of Spark.",
            r"spark\.[A-Za-z0-9._-]+",
            253,
            "a property such as spark.sql.shuffle.partitions",
        ),
    ]
    value: Annotated[str, Text("Its value.")]


@dataclass(frozen=True, slots=True)
class Spark(Block):
    image: Annotated[Image, Part("The image with Spark and tidemill.", Image)] = field(default_factory=Image)
    service_account_name: Annotated[
        str,
        Text("Whose rights the driver has.", OBJECT_NAME_PATTERN, 253, OBJECT_NAME_MEANS),
    ] = "tidemill-spark"
    driver: Annotated[SparkDriver, Part("The driver's pod.", SparkDriver)] = field(
        default_factory=SparkDriver
    )
    executor: Annotated[SparkExecutor, Part("The executors' pods.", SparkExecutor)] = field(
        default_factory=SparkExecutor
    )
    scheduling: Annotated[Scheduling, Part("Where they run.", Scheduling)] = field(default_factory=Scheduling)
    conf: Annotated[
        tuple[SparkConf, ...], Items("Properties of Spark.", Part("A property.", SparkConf), key="name")
    ] = ()


@dataclass(frozen=True, slots=True)
class ArchiveSpec(Block):
    cluster_ref: Annotated[
        ClusterRef, Part("The cluster it belongs to.", ClusterRef, instead=ANOTHER_CLUSTER)
    ]
    source: Annotated[ArchiveSource, Part("What is archived.", ArchiveSource)]
    destination: Annotated[ArchiveDestination, Part("Where to.", ArchiveDestination)]
    schedule: Annotated[
        str, Text("When it runs, as cron says it.", _cron_pattern(), EXPRESSION_CHARS_MAX, CRON_MEANS)
    ]
    time_zone: Annotated[
        str,
        Text(
            "Whose clocks the schedule means.",
            r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}",
            64,
            "a time zone such as UTC or Europe/Berlin",
        ),
    ] = "UTC"
    concurrency_policy: Annotated[
        str,
        Choice("What becomes of a run that is due while one is under way.", ("Forbid", "Replace")),
    ] = "Forbid"
    window: Annotated[ArchiveWindow, Part("Which time a run archives.", ArchiveWindow)] = field(
        default_factory=ArchiveWindow
    )
    state: Annotated[str, Choice("Suspended starts no more runs.", ("Active", "Suspended"))] = "Active"
    history: Annotated[History, Part("What is kept of former runs.", History)] = field(
        default_factory=History
    )
    start_deadline_seconds: Annotated[
        int, Number("A run whose driver is not there by then has failed.", 60, DAY_SECONDS)
    ] = 900
    spark: Annotated[Spark, Part("Who does the work.", Spark)] = field(default_factory=Spark)

    def conflict(self) -> tuple[str, str] | None:
        try:
            parse_cron(self.schedule)
        except ValueError as error:
            return "schedule", f"cannot be: {error}"
        return None


@dataclass(frozen=True, slots=True)
class ArchiveRef(Block):
    name: Annotated[str, Text("The Archive's name, in the same namespace.", "", 30)]


@dataclass(frozen=True, slots=True)
class ReplayFilter(Block):
    subject: Annotated[str | None, Text("The subject; all when absent.", NAME_PATTERN, 100, NAME_MEANS)] = (
        None
    )
    tags: Annotated[
        tuple[str, ...],
        Items(
            "Tags, of which a message must have one.",
            Text("A tag.", length_max=limits.TAG_BYTES_MAX),
            0,
            limits.TAGS_MAX,
        ),
    ] = ()
    message_ids: Annotated[
        tuple[str, ...], Items("Messages by their ids.", Text("An id.", length_max=64), 0, 1000)
    ] = ()
    keys: Annotated[tuple[str, ...], Items("Messages by their keys.", Text("A key."), 0, 1000)] = ()


@dataclass(frozen=True, slots=True)
class ReplaySource(Block):
    from_: Annotated[str, Time("The time of the first message.")]
    to: Annotated[str, Time("The time before which the last one was sent.")]
    archive_ref: Annotated[ArchiveRef | None, Part("The Archive that is read.", ArchiveRef)] = None
    uri: Annotated[str | None, Text("Or its folder.", URI_PATTERN, 1024, URI_MEANS)] = None
    filter: Annotated[ReplayFilter, Part("Which messages.", ReplayFilter)] = field(
        default_factory=ReplayFilter
    )

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule("has(self.archiveRef) != has(self.uri)", "write one of archiveRef and uri"),
        Rule("timestamp(self.from) < timestamp(self.to)", "write a time after from", "to"),
    )

    def conflict(self) -> tuple[str, str] | None:
        if (self.archive_ref is None) == (self.uri is None):
            return "", f"says {'neither' if self.uri is None else 'both'}: write one of archiveRef and uri"
        if (parse_timestamp(self.from_) or 0) >= (parse_timestamp(self.to) or 0):
            return "to", f"is {self.to}: write a time after from, {self.from_}"
        return None


@dataclass(frozen=True, slots=True)
class ReplayTarget(Block):
    subject: Annotated[str, Text("The subject they are sent to.", NAME_PATTERN, 100, NAME_MEANS)]
    consumer_group: Annotated[
        str | None,
        Text("The only group that gets them; all groups when absent.", NAME_PATTERN, 100, NAME_MEANS),
    ] = None


@dataclass(frozen=True, slots=True)
class ReplayRate(Block):
    messages_per_second: Annotated[int, Number("At most so many, of all executors.", 1, 1_000_000)] = 2000


@dataclass(frozen=True, slots=True)
class ReplaySpec(Block):
    cluster_ref: Annotated[ClusterRef, Part("The cluster it belongs to.", ClusterRef, instead=AGAIN)]
    source: Annotated[ReplaySource, Part("What is sent again.", ReplaySource, instead=AGAIN)]
    target: Annotated[ReplayTarget, Part("Where to.", ReplayTarget, instead=AGAIN)]
    rate: Annotated[ReplayRate, Part("How fast.", ReplayRate, instead=AGAIN)] = field(
        default_factory=ReplayRate
    )
    headers: Annotated[
        str,
        Choice(
            "Preserve: as they were; MarkReplayed: with a property that says so.",
            ("Preserve", "MarkReplayed"),
            instead=AGAIN,
        ),
    ] = "MarkReplayed"
    ordering: Annotated[
        str,
        Choice("ByKey keeps the order of each order key.", ("ByKey", "None"), instead=AGAIN),
    ] = "ByKey"
    mode: Annotated[str, Choice("DryRun counts and sends nothing.", ("Run", "DryRun"), instead=AGAIN)] = "Run"
    state: Annotated[str, Choice("Suspended stops it, and goes on later.", ("Active", "Suspended"))] = (
        "Active"
    )
    backoff_limit: Annotated[
        int, Number("How often it is tried again when it fails.", 0, 100, instead=AGAIN)
    ] = 2
    active_deadline_seconds: Annotated[
        int, Number("What takes longer has failed.", 60, YEAR_SECONDS, instead=AGAIN)
    ] = 6 * 3600
    ttl_seconds_after_finished: Annotated[
        int, Number("For how long its Spark application is kept.", 0, YEAR_SECONDS)
    ] = 7 * DAY_SECONDS
    spark: Annotated[Spark, Part("Who does the work.", Spark, instead=AGAIN)] = field(default_factory=Spark)
