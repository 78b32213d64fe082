# ruff: noqa: E501 - an expected sentence stands on one line
"""A manifest is a proven declaration or one sentence that says where, what is wrong and what to write instead."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill_wire import limits
from tidemill_wire.declarations import (
    API_VERSION,
    ConsumerGroup,
    Subject,
    parse_manifest,
    parse_manifest_files,
    parse_manifests,
)
from tidemill_wire.group_specs import ConsumerGroupSpec
from tidemill_wire.schema import Items, Labels, ManifestError, Part, described_fields, parse_timestamp
from tidemill_wire.specs import CONFIG, SubjectSpec


def subject_document(spec: object = None, name: str = "orders", **more: object) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION, "kind": "Subject", "metadata": {"name": name}, "spec": spec, **more
    }  # fmt: skip


def group_document(spec: object = None, name: str = "billing", **more: object) -> dict[str, Any]:
    return {**subject_document(spec, name, **more), "kind": "ConsumerGroup"}


def subject(spec: object = None, name: str = "orders") -> Subject:
    declaration = parse_manifest(subject_document(spec, name))
    assert isinstance(declaration, Subject)
    return declaration


def group(**spec: object) -> ConsumerGroup:
    declaration = parse_manifest(group_document({"subjectName": "orders", **spec}))
    assert isinstance(declaration, ConsumerGroup)
    return declaration


FULL_SUBJECT = {
    "clusterRef": {"name": "prod"},
    "subjectName": "hotel.order.changed",
    "placement": {"minBrokerGroups": 2, "brokerGroupSelector": {"matchLabels": {"tier": "ssd"}}},
    "retention": {"messageSeconds": 259_200, "maxBytes": "50Gi"},
    "message": {"maxBytes": 2_097_152},
    "delay": {"mode": "Forbidden", "maxDelaySeconds": 63_072_000},
    "deadLetter": {"mode": "Disabled"},
    "config": [{"name": "durability", "value": "high"}],
    "orderStrategy": "BestTried",
    "managementPolicy": "CreateOnly",
    "deletionPolicy": "DeleteIfEmpty",
}

FULL_GROUP = {
    "clusterRef": {"name": "prod"},
    "subjectRef": {"name": "orders"},
    "groupName": "Ticketing",
    "consumption": "Ordered",
    "startFrom": {"position": "Timestamp", "timestamp": "2026-09-01T00:00:00Z"},
    "delivery": {
        "maxAttempts": 16, "ackTimeoutSeconds": 30, "retryBackoffSeconds": [5, 30, 300], "minRetrySeconds": 60,
    },
    "deadLetter": {"mode": "Enabled", "retentionSeconds": 86_400},
    "filter": {"tags": ["pay", "cancel"], "match": "Any"},
    "limits": {"maxInFlight": 100, "maxConsumers": 5},
    "state": "Suspended",
    "autoscaling": {
        "mode": "Keda",
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "ticketing"},
        "minReplicas": 1, "maxReplicas": 50, "lagPerReplica": 1000, "idleReplicas": 0,
    },
    "deletionPolicy": "Delete",
}  # fmt: skip


class TestSubjects:
    def test_a_subject_that_says_nothing_has_the_defaults(self) -> None:
        declared = subject()
        assert declared.name == "orders"
        assert declared.durability is None
        assert declared.retention_seconds == limits.RETENTION_SECONDS_DEFAULT
        assert declared.retention_bytes is None
        assert declared.message_bytes_max == limits.MESSAGE_BYTES_DEFAULT
        assert declared.later_seconds is None
        assert declared.dead_letters_kept

    def test_every_field_of_a_subject_is_read(self) -> None:
        declared = subject(FULL_SUBJECT)
        assert declared.name == "hotel.order.changed"
        assert declared.durability == "high"
        assert declared.retention_seconds == 259_200
        assert declared.retention_bytes == 50 * limits.GIB
        assert declared.message_bytes_max == 2_097_152
        assert declared.later_seconds == 0
        assert not declared.dead_letters_kept
        assert declared.spec.placement is not None
        assert declared.spec.placement.min_broker_groups == 2
        assert declared.spec.deletion_policy == "DeleteIfEmpty"

    def test_a_setting_without_a_value_leaves_what_is_there(self) -> None:
        assert subject({"config": [{"name": "durability"}]}).durability is None

    @pytest.mark.parametrize(
        "written, size",
        [("1", 1), (7, 7), ("2k", 2000), ("3Ki", 3072), ("1M", 10**6), ("1Gi", 2**30), ("4Ei", 2**62)],
    )
    def test_a_size_is_a_number_or_a_quantity(self, written: object, size: int) -> None:
        assert subject({"retention": {"maxBytes": written}}).retention_bytes == size


class TestConsumerGroups:
    def test_a_group_that_says_nothing_has_the_defaults(self) -> None:
        declared = group()
        assert (declared.name, declared.subject, declared.start) == ("billing", "orders", "earliest")
        assert declared.consumption == "shared"
        assert declared.lease_ms == limits.LEASE_MS_DEFAULT
        assert declared.attempts_max == 32
        assert declared.retry_ms_min == 24 * 3600 * 1000
        assert declared.backoff_ms[:3] == (1000, 2000, 4000)
        assert declared.backoff_ms[-1] == 600_000
        assert (declared.max_in_flight, declared.max_consumers) == (10_000, 500)
        assert (declared.tags, declared.tag_match) == ((), "none")
        assert not declared.suspended

    def test_every_field_of_a_group_is_read(self) -> None:
        declared = parse_manifests([subject_document(FULL_SUBJECT), group_document(FULL_GROUP)])[1]
        assert isinstance(declared, ConsumerGroup)
        assert (declared.name, declared.subject) == ("Ticketing", "hotel.order.changed")
        assert declared.start == 1_788_220_800_000
        assert (declared.consumption, declared.suspended) == ("ordered", True)
        assert (declared.lease_ms, declared.attempts_max, declared.retry_ms_min) == (30_000, 16, 60_000)
        assert declared.backoff_ms == (5000, 30_000, 300_000)
        assert (declared.dead_letters_kept, declared.dead_letter_retention_seconds) == (True, 86_400)
        assert (declared.tags, declared.tag_match) == (("pay", "cancel"), "any")
        assert (declared.max_in_flight, declared.max_consumers) == (100, 5)
        assert declared.spec.autoscaling.idle_replicas == 0

    def test_a_group_may_start_at_the_latest_message(self) -> None:
        assert group(startFrom={"position": "Latest"}).start == "latest"

    def test_a_time_without_quotes_is_a_datetime_in_yaml_and_means_the_same(self) -> None:
        moment = datetime(2026, 9, 1, tzinfo=UTC)
        assert group(startFrom={"position": "Timestamp", "timestamp": moment}).start == 1_788_220_800_000

    def test_a_lone_group_names_the_subject_object_it_refers_to(self) -> None:
        declared = parse_manifest(group_document({"subjectRef": {"name": "orders"}}))
        assert isinstance(declared, ConsumerGroup)
        assert declared.subject == "orders"


class TestMaps:
    @pytest.mark.parametrize("document", [subject_document(), subject_document(FULL_SUBJECT)])
    def test_a_subject_survives_the_action_log(self, document: object) -> None:
        declared = parse_manifest(document)
        assert isinstance(declared, Subject)
        assert Subject.from_map(msgpack.unpackb(msgpack.packb(declared.to_map()))) == declared

    @pytest.mark.parametrize("spec", [{"subjectName": "orders"}, FULL_GROUP])
    def test_a_group_survives_the_action_log(self, spec: object) -> None:
        declared = parse_manifest(group_document(spec, metadata={"name": "b", "labels": {"a": "b"}}))
        assert isinstance(declared, ConsumerGroup)
        assert ConsumerGroup.from_map(msgpack.unpackb(msgpack.packb(declared.to_map()))) == declared

    def test_a_map_of_another_kind_is_refused(self) -> None:
        with pytest.raises(ManifestError, match="kind is 'Subject': write ConsumerGroup"):
            ConsumerGroup.from_map(subject().to_map())

    def test_declarations_are_values(self) -> None:
        assert subject(FULL_SUBJECT) == subject(FULL_SUBJECT)
        assert hash(subject(FULL_SUBJECT)) == hash(subject(FULL_SUBJECT))


class TestFiles:
    def test_empty_documents_are_skipped_but_counted(self) -> None:
        with pytest.raises(ManifestError, match=r"^a\.yaml, document 3: spec\.nonsense") as caught:
            parse_manifests([None, subject_document(), subject_document({"nonsense": 1}, "other")], "a.yaml")
        assert (caught.value.file, caught.value.document) == ("a.yaml", 3)

    def test_a_list_is_what_is_in_it(self) -> None:
        listed = {
            "apiVersion": "v1",
            "kind": "List",
            "items": [subject_document(), subject_document(name="b")],
        }
        assert [declared.name for declared in parse_manifests([listed])] == ["orders", "b"]

    def test_what_kubectl_gets_is_taken_back(self) -> None:
        metadata = {
            "name": "orders",
            "namespace": "shop",
            "uid": "1",
            "resourceVersion": "2",
            "managedFields": [],
        }
        declared = parse_manifest(subject_document(metadata=metadata, status={"conditions": []}))
        assert declared.metadata.namespace == "shop"

    def test_a_group_may_refer_to_a_subject_in_another_file(self) -> None:
        files = {
            "groups.yaml": [group_document({"subjectRef": {"name": "orders"}})],
            "subjects.yaml": [subject_document({"subjectName": "hotel.order"})],
        }
        declared = parse_manifest_files(files).declarations[0]
        assert isinstance(declared, ConsumerGroup)
        assert declared.subject == "hotel.order"

    @pytest.mark.parametrize(
        "documents, sentence",
        [
            (
                [subject_document(), subject_document()],
                "document 2: metadata.name is 'orders', declared already in document 1: keep one of the two",
            ),
            (
                [subject_document(), subject_document({"subjectName": "orders"}, "other")],
                "document 2: spec.subjectName is 'orders', declared already in document 1: keep one of the two",
            ),
            (
                [group_document({"subjectName": "a"}), group_document({"subjectName": "a", "groupName": "billing"}, "x")],
                "document 2: spec.groupName is 'billing', declared already in document 1: keep one of the two",
            ),
            (
                [subject_document(), group_document({"subjectRef": {"name": "order"}})],
                "document 2: spec.subjectRef.name is 'order', which no Subject here is called: did you mean orders?",
            ),
        ],
    )  # fmt: skip
    def test_declarations_that_do_not_fit_together_are_refused(
        self, documents: list[object], sentence: str
    ) -> None:
        with pytest.raises(ManifestError) as caught:
            parse_manifests(documents)
        assert str(caught.value) == sentence

    def test_one_group_name_may_be_used_on_several_subjects(self) -> None:
        documents = [
            group_document({"subjectName": "a"}),
            group_document({"subjectName": "b", "groupName": "billing"}, "x"),
        ]
        assert len(parse_manifests(documents)) == 2


class TestSentences:
    @pytest.mark.parametrize(
        "spec, sentence",
        [
            ({"retention": {"messageSecond": 3}}, "spec.retention.messageSecond is not a known field: did you mean messageSeconds?"),
            ({"retention": {"messageSeconds": 3}}, "spec.retention.messageSeconds is 3: write a whole number from 60 to 315360000"),
            ({"retention": {"messageSeconds": True}}, "spec.retention.messageSeconds is true: write a whole number from 60 to 315360000"),
            ({"retention": 3}, "spec.retention is 3: write a mapping of messageSeconds, maxBytes, archive"),
            ({"retention": {"maxBytes": "50gb"}}, "spec.retention.maxBytes is '50gb': write a size in bytes such as 50Gi, 200M or 1048576"),
            ({"retention": {"maxBytes": 0}}, "spec.retention.maxBytes is 0: write a size in bytes such as 50Gi, 200M or 1048576, not 0"),
            ({"message": {"maxBytes": "2Mi"}}, "spec.message.maxBytes is '2Mi': write a whole number from 1024 to 16711680, for example 2097152 without quotes and unit"),
            ({"subjectName": 1.5}, "spec.subjectName is 1.5: write 1 to 100 characters of A-Z a-z 0-9 . _ - (names with % are tidemill's own), in quotes"),
            ({"subjectName": "%dead%x"}, "spec.subjectName is '%dead%x': write 1 to 100 characters of A-Z a-z 0-9 . _ - (names with % are tidemill's own)"),
            ({"deletionPolicy": "retain"}, "spec.deletionPolicy is 'retain': did you mean Retain?"),
            ({"deletionPolicy": "Keep"}, "spec.deletionPolicy is 'Keep': write Retain, Delete or DeleteIfEmpty"),
            ({"placement": {}}, "spec.placement says nothing: write either brokerGroups, or minBrokerGroups and brokerGroupSelector"),
            ({"placement": {"brokerGroups": ["g0"], "minBrokerGroups": 1}}, "spec.placement says both: write either brokerGroups, or minBrokerGroups and brokerGroupSelector"),
            ({"placement": {"brokerGroups": ["g0", "g0"]}}, "spec.placement.brokerGroups holds 'g0' twice: write it once"),
            ({"placement": {"brokerGroups": []}}, "spec.placement.brokerGroups has 0 items: write 1 to 32"),
            ({"placement": {"brokerGroupSelector": {"matchLabels": {"a": 1}}}}, "spec.placement.brokerGroupSelector.matchLabels.a is 1: write a text, in quotes"),
            ({"config": [{"name": "durabilty"}]}, "spec.config[0].name is 'durabilty', which is not a setting: did you mean durability?"),
            ({"config": [{"name": "durability", "value": "top"}]}, "spec.config[0].value of durability is 'top': write low, normal or high"),
            ({"config": [{"name": "durability"}, {"name": "durability"}]}, "spec.config holds 'durability' twice: write it once"),
            ({"config": {"durability": "low"}}, "spec.config is a mapping: write a list of 0 to 64 items, each a mapping of name, value"),
            ({"clusterRef": {}}, "spec.clusterRef.name is missing: write a text of 1 to 63 characters"),
        ],
    )  # fmt: skip
    def test_a_wrong_subject_is_one_sentence_with_what_to_write(self, spec: object, sentence: str) -> None:
        with pytest.raises(ManifestError) as caught:
            subject(spec)
        assert str(caught.value) == sentence

    @pytest.mark.parametrize(
        "spec, sentence",
        [
            ({}, "spec says neither subjectRef nor subjectName: write one of the two"),
            ({"subjectName": "a", "subjectRef": {"name": "b"}}, "spec says both subjectRef and subjectName: write one of the two"),
            ({"subjectName": "a", "delivery": {"retryBackoffSeconds": [3, 2]}}, "spec.delivery.retryBackoffSeconds goes down: write pauses that stay or grow, for example [5, 30, 300]"),
            ({"subjectName": "a", "delivery": {"retryBackoffSeconds": [0]}}, "spec.delivery.retryBackoffSeconds[0] is 0: write a whole number from 1 to 86400"),
            ({"subjectName": "a", "filter": {"tags": ["a"]}}, "spec.filter.match is missing or None, but there are tags: write Any or All"),
            ({"subjectName": "a", "filter": {"match": "All"}}, "spec.filter.tags is missing: write the tags to match All of"),
            ({"subjectName": "a", "startFrom": {"position": "Timestamp"}}, "spec.startFrom.timestamp is missing: write a time such as 2026-09-01T00:00:00Z, or another position"),
            ({"subjectName": "a", "startFrom": {"timestamp": "2026-09-01T00:00:00Z"}}, "spec.startFrom.timestamp has no meaning with position Earliest: write position Timestamp, or drop it"),
            ({"subjectName": "a", "startFrom": {"position": "Timestamp", "timestamp": "soon"}}, "spec.startFrom.timestamp is 'soon': write a time such as 2026-09-01T00:00:00Z"),
            ({"subjectName": "a", "autoscaling": {"mode": "Keda"}}, "spec.autoscaling.scaleTargetRef is missing: write apiVersion, kind and name of what is to be scaled"),
            ({"subjectName": "a", "autoscaling": {"minReplicas": 60}}, "spec.autoscaling.maxReplicas is 50: write at least minReplicas, 60"),
            ({"subjectName": "a", "autoscaling": {"idleReplicas": 1}}, "spec.autoscaling.idleReplicas is 1: write less than minReplicas, or drop it"),
        ],
    )  # fmt: skip
    def test_a_wrong_group_is_one_sentence_with_what_to_write(self, spec: object, sentence: str) -> None:
        with pytest.raises(ManifestError) as caught:
            parse_manifest(group_document(spec))
        assert str(caught.value) == sentence

    @pytest.mark.parametrize(
        "document, sentence",
        [
            ([], "the document is a list: write apiVersion, kind, metadata and spec"),
            ({"kind": "Subject"}, "apiVersion is missing: write tidemill.dev/v1alpha1"),
            ({"apiVersion": "v1", "kind": "ConfigMap"}, "apiVersion is 'v1': write tidemill.dev/v1alpha1"),
            ({"apiVersion": API_VERSION, "kind": "Subjekt"}, "kind is 'Subjekt': did you mean Subject?"),
            ({"apiVersion": API_VERSION, "kind": "Pod"}, "kind is 'Pod': write Subject or ConsumerGroup"),
            ({"apiVersion": API_VERSION, "kind": "Subject"}, "metadata.name is missing: write a text of 1 to 253 characters"),
            (subject_document(sepc={}), "sepc is not a field of a Subject: did you mean spec?"),
            (subject_document(retention={}), "retention is not a field of a Subject: what describes the object belongs below spec"),
            (subject_document(name="Orders"), "metadata.name is 'Orders': write lower-case letters, digits, - and . as Kubernetes wants it, and any other name into spec.subjectName"),
            (subject_document(name="o" * 101), "metadata.name has 101 characters, too many for a name: write a name of at most 100 into spec.subjectName"),
        ],
    )  # fmt: skip
    def test_a_wrong_document_is_one_sentence_with_what_to_write(
        self, document: object, sentence: str
    ) -> None:
        with pytest.raises(ManifestError) as caught:
            parse_manifest(document)
        assert str(caught.value) == sentence

    def test_a_long_wrong_value_is_cut(self) -> None:
        with pytest.raises(ManifestError) as caught:
            subject({"subjectName": "o" * 1000})
        assert len(str(caught.value)) < 250


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = sorted(
    {described.name for block in (SubjectSpec, ConsumerGroupSpec) for _, described in described_fields(block)}
)
near = st.dictionaries(
    st.sampled_from(FIELDS), plain | st.dictionaries(st.sampled_from(FIELDS), plain, max_size=3), max_size=4
)


@given(document=plain | st.builds(subject_document, plain | near) | st.builds(group_document, plain | near))
def test_whatever_is_written_is_a_declaration_or_a_sentence(document: object) -> None:
    sentence = ""
    try:
        declared = parse_manifest(document, "some.yaml", 7)
    except ManifestError as error:
        sentence = str(error)
    else:
        assert parse_manifest(declared.to_map()) == declared
    assert len(sentence.splitlines()) <= 1
    assert sentence == "" or sentence.startswith("some.yaml, document 7: ")


@pytest.mark.parametrize("block", [SubjectSpec, ConsumerGroupSpec])
def test_the_table_documents_every_field(block: type[SubjectSpec]) -> None:
    for path, described in described_fields(block):
        assert described.doc.endswith("."), path
        assert described.kind, path
        if isinstance(described, Items | Labels | Part) or described.default is None:
            continue
        assert described.parse(described.default, path) == described.default, path


def test_the_table_has_the_fields_of_the_design() -> None:
    """The paths of the operator's design; a field that is added or lost is a change of the API."""
    fields = described_fields(SubjectSpec)
    subject_paths = {path for path, described in fields if not isinstance(described, Part)}
    assert subject_paths == {
        "clusterRef.name", "subjectName", "placement.minBrokerGroups", "placement.brokerGroups",
        "placement.brokerGroupSelector.matchLabels", "retention.messageSeconds", "retention.maxBytes", "retention.archive",
        "message.maxBytes", "delay.mode", "delay.maxDelaySeconds", "deadLetter.mode", "config", "config[].name",
        "config[].value", "orderStrategy", "deduplicationSeconds", "managementPolicy", "deletionPolicy",
        "quota.messagesPerSecond", "quota.bytesPerSecond", "quota.inFlight",
    }  # fmt: skip
    assert set(CONFIG) == {"durability"}


@given(
    moment=st.datetimes(datetime(1971, 1, 1), datetime(9998, 1, 1)),  # noqa: DTZ001
    east_minutes=st.integers(-1439, 1439),
)
def test_timestamps_are_read_as_the_standard_library_reads_them(moment: datetime, east_minutes: int) -> None:
    there = moment.replace(tzinfo=timezone(timedelta(minutes=east_minutes)))
    expected = (there - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    assert parse_timestamp(there.isoformat()) == expected


@pytest.mark.parametrize(
    "written",
    ["", "2026-02-29T00:00:00Z", "2026-13-01T00:00:00Z", "2026-00-01T00:00:00Z", "2026-01-01T24:00:00Z",
     "2026-01-01T00:00:00", "2026-01-01", "2026-01-01T00:00:60Z", "2026-01-01T00:00:00+24:00", "٢٠٢٦-01-01T00:00:00Z",
     "2026-01-01T00:00:00Z\n"],
)  # fmt: skip
def test_what_is_no_moment_is_none(written: str) -> None:
    assert parse_timestamp(written) is None
