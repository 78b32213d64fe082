"""What is for Kubernetes alone is checked all the same; what no kind may be is refused in one sentence."""

from __future__ import annotations

from typing import Any

import pytest

from samples.manifests import Bad, bad_manifests, good_manifests, least
from tidemill_wire.declarations import Subject, parse_manifest_files, parse_manifests
from tidemill_wire.quantities import SIZE_MAX, UNITS, bytes_of, written_size
from tidemill_wire.resources import KINDS, parse_resource
from tidemill_wire.schema import Items, Labels, ManifestError, Part, described_fields

BAD = bad_manifests()
KNOWN_HERE = [one for one in BAD if one.parser is not None]
LEFT_TO_THE_CLUSTER = [one for one in BAD if one.parser is None]


def test_the_table_is_as_long_as_it_should_be() -> None:
    assert len(KNOWN_HERE) >= 60
    assert len({one.is_a for one in BAD}) == len(BAD)
    assert {one.manifest["kind"] for one in BAD} == set(KINDS)


@pytest.mark.parametrize("bad", KNOWN_HERE, ids=lambda bad: bad.is_a)
def test_a_bad_manifest_is_one_sentence_with_what_to_write(bad: Bad) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_resource(bad.manifest)
    sentence = str(caught.value)
    assert bad.parser is not None
    assert bad.parser in sentence
    assert len(sentence.splitlines()) == 1


@pytest.mark.parametrize("bad", LEFT_TO_THE_CLUSTER, ids=lambda bad: bad.is_a)
def test_what_only_a_cluster_needs_is_not_asked_of_a_laptop(bad: Bad) -> None:
    assert parse_resource(bad.manifest).kind.name == bad.manifest["kind"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_least_of_each_kind_is_taken(kind: str) -> None:
    assert parse_resource(least(kind)).kind is KINDS[kind]


@pytest.mark.parametrize(
    "manifest", good_manifests(), ids=lambda one: f"{one['kind']}-{one['metadata']['name']}"
)
def test_samples_are_taken_and_written_out_mean_the_same(manifest: dict[str, Any]) -> None:
    resource = parse_resource(manifest)
    written = {**manifest, "spec": resource.spec.to_map()}
    assert parse_resource(written) == resource


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_every_field_of_every_kind_is_documented(kind: Any) -> None:
    for path, described in described_fields(kind.spec):
        assert described.doc.endswith("."), path
        assert described.kind, path
        assert not described.instead.endswith("."), path
        if isinstance(described, Items | Labels | Part) or described.default is None:
            continue
        assert described.parse(described.default, path) == described.default, path


def test_a_part_that_says_nothing_is_not_written_out() -> None:
    """A broker of an earlier version refuses a field that it does not know, and with it all that was declared."""

    def written(spec: dict[str, Any]) -> dict[str, Any]:
        return parse_resource({**least("Subject"), "spec": spec}).spec.to_map()

    spec = written({"placement": {"brokerGroupSelector": {}}})
    assert not {"quota", "message"} & spec.keys()
    assert spec["placement"] == {"brokerGroupSelector": {}}  # any group: that is not the default
    assert written({"quota": {"messagesPerSecond": 5}})["quota"] == {"messagesPerSecond": 5}


def test_one_file_is_good_for_kubernetes_and_for_a_laptop() -> None:
    documents = [least("QueueCluster"), least("BrokerGroup", name="g0"), least("Subject"), least("Grant")]
    manifests = parse_manifest_files({"all.yaml": documents})
    (declaration,) = manifests.declarations
    assert isinstance(declaration, Subject)
    passed = "is passed over: without Kubernetes"
    assert [one.metadata.name for one in manifests.grants] == ["sample"]
    assert [str(one) for one in manifests.passed_over] == [
        f"all.yaml, document 1: the QueueCluster sample {passed} this queue is the cluster",
        f"all.yaml, document 2: the BrokerGroup g0 {passed} --brokers, --slaves and --delays say how many there are",
    ]


def test_what_is_passed_over_is_checked_and_there_once() -> None:
    with pytest.raises(ManifestError, match=r"document 2: metadata.name is 'sample', declared already"):
        parse_manifest_files({"all.yaml": [least("Grant"), least("Grant")]})
    with pytest.raises(
        ManifestError, match=r"document 1: spec.slaves is 9: write a whole number from 0 to 4"
    ):
        parse_manifest_files({"all.yaml": [least("BrokerGroup", {"slaves": 9})]})


def test_meta_is_given_subjects_and_groups_and_nothing_else() -> None:
    with pytest.raises(
        ManifestError,
        match="kind is 'BrokerGroup', which is for Kubernetes alone: write Subject or ConsumerGroup",
    ):
        parse_manifests([least("BrokerGroup")])


@pytest.mark.parametrize("written", ["2026-09-01 00:00:00Z", "2026-09-01t00:00:00Z", "2026-09-01T00:00:00z"])
def test_a_time_is_written_as_kubernetes_wants_it(written: str) -> None:
    with pytest.raises(ManifestError, match=r"spec\.startFrom\.timestamp is .* write a time such as 2026"):
        parse_resource(least("ConsumerGroup", {"startFrom": {"position": "Timestamp", "timestamp": written}}))


def test_a_label_of_nothing_is_no_label() -> None:
    """As the API server has it, and as any other field of nothing is absent."""
    manifest = least("BrokerGroup")
    labelled = {**manifest, "spec": {**manifest["spec"], "labels": {"disk": None, "zone": "a"}}}
    assert parse_resource(labelled).spec.to_map()["labels"] == {"zone": "a"}


@pytest.mark.parametrize("unit, factor", UNITS.items())
def test_sizes_are_written_as_they_are_read(unit: str, factor: int) -> None:
    assert bytes_of(f"3{unit}") == 3 * factor
    assert bytes_of(written_size(3 * factor)) == 3 * factor


@pytest.mark.parametrize("written", ["", "K", "1K", "1 Gi", "1.5Gi", "-1", "1gi", "1Gi\n", "1m"])
def test_what_kubernetes_would_not_take_is_no_size(written: str) -> None:
    assert bytes_of(written) is None


def test_sizes_end_before_the_api_server_cuts_them() -> None:
    assert written_size(SIZE_MAX) == "4Ei"
    assert written_size(0) == "0"
    assert written_size(1025) == "1025"
