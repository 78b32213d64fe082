"""The charts: what helm makes of them, what it refuses with which words, and what a real API server says to it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.build import programs
from cluster.kwok import KwokCluster
from samples.scripts import ROOT, script

pytestmark = pytest.mark.cluster

CHARTS = ROOT / "charts"
OPERATOR, QUEUE = CHARTS / "tidemill-operator", CHARTS / "tidemill"
CASES = [
    (chart, values) for chart in (OPERATOR, QUEUE) for values in (None, *sorted(chart.glob("ci/*.yaml")))
]
PROMETHEUS = "monitoring.coreos.com/v1"
AGGREGATOR = "apiregistration.k8s.io/v1"

BAD = [
    # chart, what is set, what helm says
    (OPERATOR, "replicaCout=2", "replicaCout"),
    (OPERATOR, "replicaCount=9", "replicaCount.*less than or equal to 5"),
    (OPERATOR, "settings.address=http://elsewhere", "settings"),
    (OPERATOR, "settings.resyncMs=7", "settings"),
    (OPERATOR, "image.tag=a b", "image.tag"),
    (OPERATOR, "image.digest=sha256:12", "image.digest"),
    (OPERATOR, "image.pullPolicy=Sometimes", "image.pullPolicy"),
    (OPERATOR, "watch.scope=All", "watch.scope"),
    (OPERATOR, "watch.namespaces={shop}", "set the scope, or leave the list empty"),
    (OPERATOR, "watch.scope=Namespaces,watch.namespaces={Shop}", "watch.namespaces"),
    (OPERATOR, "watch.scope=Namespaces,watch.namespaces={shop,shop}", "unique"),
    (OPERATOR, "serviceAccount.create=false", "say which ServiceAccount it is"),
    (OPERATOR, "serviceAccount.name=Operator", "serviceAccount.name"),
    (OPERATOR, "crds.keep=yes", "crds.keep"),
    (OPERATOR, "resources.limits.memory=much", "resources.limits.memory"),
    (OPERATOR, "resources.limit.memory=1Gi", "limit"),
    (OPERATOR, "livenessProbe.httpGet.path=/", "httpGet"),
    (OPERATOR, "metrics.serviceMonitor.interval=30", "metrics.serviceMonitor.interval"),
    (OPERATOR, "terminationGracePeriodSeconds=0", "terminationGracePeriodSeconds"),
    (OPERATOR, "commonLabels.team=7", "commonLabels.team"),
    (OPERATOR, "extraEnv.NAME=value", "extraEnv"),
    (OPERATOR, "imagePullSecrets={registry}", "imagePullSecrets"),
    (QUEUE, "nameOverride=Shop", "nameOverride"),
    (QUEUE, "nameOverride=" + "a" * 35, "nameOverride"),
    (QUEUE, "brokerGroup[0].name=g0", "brokerGroup"),
    (QUEUE, "brokerGroups[0].name=g-0", "brokerGroups.0.name"),
    (QUEUE, "brokerGroups[0].slaves=1", "name is required"),
    (QUEUE, "brokerGroups[0].name=g0,brokerGroups[1].name=g0", "brokerGroups has g0 twice"),
    (QUEUE, "brokerGroups[0].name=g0,brokerGroups[0].replicas=2", "replicas"),
    (QUEUE, "brokerGroups[0].name=g0,brokerGroups[0].slaves=9", "slaves"),
    (QUEUE, "brokerGroups[0].name=g0,brokerGroups[0].kind=Later", "kind"),
    (QUEUE, "brokerDefaults.storage.sise=1Gi", "sise"),
    (QUEUE, "subjects[0].name=Order", "subjects.0.name"),
    (QUEUE, "subjects[0].name=order,subjects[0].retention.days=7", "days"),
    (QUEUE, "subjects[0].name=order,subjects[0].orderStrategy=Loose", "orderStrategy"),
    (QUEUE, "consumerGroups[0].name=billing,consumerGroups[0].state=Off", "state"),
    (QUEUE, "consumerGroups[0].name=billing,consumerGroups[0].clusterRef.name=other", "clusterRef"),
    (QUEUE, "cluster.meta.replicas=0", "cluster.meta.replicas"),
    (QUEUE, "cluster.brokers=3", "brokers"),
    (QUEUE, "postgresql.existingSecret=db,cluster.meta.store.type=PostgreSQL", "write one of them"),
    (QUEUE, "cluster.brokerGroups[0].name=g0", "brokerGroups"),
    (QUEUE, "postgresql.password=secret", "password"),
    (QUEUE, "archives[0].name=orders,archives[0].schedul=@daily", "schedul"),
    (QUEUE, "archives[0].name=" + "o" * 31, "archives.0.name"),
    (QUEUE, "spark.serviceAccount.create=yes", "spark.serviceAccount.create"),
    (OPERATOR, "sparkImage.tag=a b", "sparkImage.tag"),
    (OPERATOR, "settings.spark_image=elsewhere:1", "settings"),
    (QUEUE, "tests.subject=%dead%", "tests.subject"),
    (QUEUE, "canary.enabled=yes", "canary.enabled"),
    (QUEUE, "canary.intervalMilliseconds=1", "intervalMilliseconds.*greater than or equal to 10"),
    (QUEUE, "cluster.canary.enabled=true", "canary"),
    (
        QUEUE,
        "canary.enabled=true,cluster.security.token.name=a,cluster.security.token.key=b",
        "write cluster.security.serviceAccounts, or name in canary.token",
    ),
]


def rendered(
    cluster: KwokCluster, chart: Path, *words: str, values: Path | None = None
) -> list[dict[str, Any]]:
    """The objects that helm makes."""
    files = ["--values", str(values)] if values is not None else []
    done = cluster.helm(
        "template", "one", str(chart), "--namespace", "queues", "--kube-version", "1.37.1", *files, *words
    )
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


@pytest.mark.parametrize("words, taken", [
    (("1.33.9",), True), (("1.33.9", "--api-versions", AGGREGATOR), False),
    (("1.34.0", "--api-versions", AGGREGATOR), True),
])  # fmt: skip
def test_an_older_kubernetes_is_refused_with_a_sentence_and_none_at_all_is_not(
    cluster: KwokCluster, words: Sequence[str], taken: bool
) -> None:
    done = cluster.helm("template", "one", str(OPERATOR), "--kube-version", *words)

    assert (done.returncode == 0) is taken, done.stderr
    assert taken or "this Kubernetes is v1.33.9" in done.stderr
    assert AGGREGATOR in cluster.ask("api-versions").split(), "an API server is not told by this"
    assert cluster.helm("template", "one", str(QUEUE)).returncode == 0


def named(objects: Sequence[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [one for one in objects if one["kind"] == kind]


@pytest.fixture(scope="module")
def definitions(cluster: KwokCluster) -> None:
    """The resources are known."""
    for path in sorted((ROOT / "crds").glob("*.yaml")):
        cluster.apply(path.read_text())
    cluster.ask(
        "wait",
        "--for=condition=Established",
        "crd",
        "-l",
        "app.kubernetes.io/part-of=tidemill",
        "--timeout=30s",
    )


@pytest.mark.parametrize("chart, values", CASES, ids=lambda one: getattr(one, "stem", "defaults"))
def test_helm_finds_nothing_to_complain_of(cluster: KwokCluster, chart: Path, values: Path | None) -> None:
    files = ["--values", str(values)] if values is not None else []

    done = cluster.helm("lint", "--strict", "--kube-version", "1.37.1", str(chart), *files)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("chart, values", CASES, ids=lambda one: getattr(one, "stem", "defaults"))
def test_every_object_is_taken_by_an_api_server(
    cluster: KwokCluster, namespace: str, definitions: None, chart: Path, values: Path | None
) -> None:
    objects = rendered(
        cluster,
        chart,
        "--set",
        f"fullnameOverride={namespace}" if chart == OPERATOR else "nameOverride=test",
        values=values,
    )
    for one in objects:
        if "namespace" in one["metadata"]:
            one["metadata"]["namespace"] = namespace

    said = cluster.kubectl(
        "apply",
        "--server-side",
        "--dry-run=server",
        "--validate=strict",
        "-f",
        "-",
        stdin=yaml.safe_dump_all(objects),
    )

    assert said.returncode == 0, said.stderr
    assert "warning" not in said.stderr.lower()


@pytest.mark.parametrize("chart, settings, words", BAD, ids=lambda one: getattr(one, "stem", one)[:60])
def test_bad_values_are_refused_with_words(
    cluster: KwokCluster, chart: Path, settings: str, words: str
) -> None:
    done = cluster.helm("template", "one", str(chart), "--set", settings)

    assert done.returncode != 0
    assert re.search(words, done.stderr), done.stderr


@pytest.mark.parametrize("chart", [OPERATOR, QUEUE], ids=lambda chart: chart.stem)
def test_pods_keep_the_restricted_standard(cluster: KwokCluster, namespace: str, chart: Path) -> None:
    cluster.ask("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    objects = rendered(cluster, chart)
    pods = named(objects, "Pod") + [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "one"},
            "spec": one["spec"]["template"]["spec"],
        }
        for one in named(objects, "Deployment")
    ]
    assert pods

    for pod in pods:
        pod["metadata"].pop("namespace", None)
        pod["spec"].pop("serviceAccountName", None)
        said = cluster.kubectl(
            "create", "--dry-run=server", "-n", namespace, "-f", "-", stdin=json.dumps(pod)
        )
        assert said.returncode == 0, said.stderr


def test_definitions_are_whole_and_outlive_the_release(cluster: KwokCluster) -> None:
    made = {
        one["metadata"]["name"]: one for one in named(rendered(cluster, OPERATOR), "CustomResourceDefinition")
    }
    ours = [yaml.safe_load(path.read_text()) for path in (ROOT / "crds").glob("*.yaml")]

    assert sorted(made) == sorted(one["metadata"]["name"] for one in ours)
    for one in ours:
        got = made[one["metadata"]["name"]]
        assert got["spec"] == one["spec"]
        assert got["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert named(rendered(cluster, OPERATOR, "--set", "crds.install=false"), "CustomResourceDefinition") == []


def test_one_list_of_rules_is_one_role_or_many(cluster: KwokCluster) -> None:
    rules = yaml.safe_load((OPERATOR / "files/rules.yaml").read_text())

    (whole,) = named(rendered(cluster, OPERATOR, "--set", "rbac.aggregate=false"), "ClusterRole")
    several = rendered(
        cluster, OPERATOR, "--set", "watch.scope=Namespaces,watch.namespaces={a,b},rbac.aggregate=false"
    )
    roles = {one["metadata"]["namespace"]: one["rules"] for one in named(several, "Role")}

    assert whole["rules"] == rules["namespaced"] + rules["cluster"]
    assert named(several, "ClusterRole") == []
    assert roles["a"] == roles["b"] == rules["namespaced"]
    assert [rule["resources"] for rule in roles["queues"]] == [["leases"]]


def test_what_prometheus_reads_is_made_where_it_is_known_and_asked_for(cluster: KwokCluster) -> None:
    asked = ("--set", "metrics.serviceMonitor.enabled=true,metrics.prometheusRule.enabled=true")

    kinds = {one["kind"] for one in rendered(cluster, OPERATOR, *asked, "--api-versions", PROMETHEUS)}
    unknown = {one["kind"] for one in rendered(cluster, OPERATOR, *asked)}
    unasked = {one["kind"] for one in rendered(cluster, OPERATOR, "--api-versions", PROMETHEUS)}

    assert {"ServiceMonitor", "PrometheusRule"} <= kinds
    assert not {"ServiceMonitor", "PrometheusRule"} & (unknown | unasked)


def test_a_canary_is_asked_for_by_a_value_and_scraped_where_it_has_no_locks(cluster: KwokCluster) -> None:
    without = named(rendered(cluster, QUEUE), "QueueCluster")
    made = rendered(cluster, QUEUE, "--api-versions", PROMETHEUS, values=QUEUE / "ci/locked-values.yaml")

    assert ["canary" in one["spec"] for one in without] == [False]
    [queue] = named(made, "QueueCluster")
    assert queue["spec"]["canary"]["enabled"] is True
    [monitor] = named(made, "PodMonitor")
    plain = [one for one in monitor["spec"]["podMetricsEndpoints"] if one["port"] == "metrics"]
    assert [("scheme" in one, "authorization" in one) for one in plain] == [(False, False)]


@pytest.mark.parametrize(("chart", "path"), [(OPERATOR, "metrics"), (QUEUE, "monitoring")])
def test_every_alert_leads_to_its_page(cluster: KwokCluster, chart: Path, path: str) -> None:
    asked = (
        f"{path}.prometheusRule.enabled=true,{path}.prometheusRule.runbooks=https://wiki.example.org/queues/"
    )
    made = rendered(cluster, chart, "--set", asked, "--api-versions", PROMETHEUS)

    [rule] = [one for one in made if one["kind"] == "PrometheusRule"]
    alerts = [one for group in rule["spec"]["groups"] for one in group["rules"]]
    assert alerts
    for one in alerts:
        said = one["annotations"]
        assert said["runbook_url"] == f"https://wiki.example.org/queues/{one['alert']}.md"
        assert (ROOT / said["runbook"]).is_file()


def test_what_it_makes_is_the_same_each_time(cluster: KwokCluster) -> None:
    for chart, values in CASES:
        assert rendered(cluster, chart, values=values) == rendered(cluster, chart, values=values)


def test_another_configuration_is_another_pod(cluster: KwokCluster) -> None:
    (before,), (after,) = (
        named(rendered(cluster, OPERATOR, *more), "Deployment")
        for more in ((), ("--set", "settings.resync_ms=7000"))
    )

    sums = [one["spec"]["template"]["metadata"]["annotations"]["checksum/config"] for one in (before, after)]
    assert sums[0] != sums[1]


def test_files_made_of_others_are_as_they_would_be_made() -> None:
    generate = script("charts/generate.py")

    assert generate.main(["--check"]) == 0, "make charts"


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[KwokCluster]:
    """A cluster that nobody has told of tidemill: definitions that a release brings must not be there."""
    made = KwokCluster(tmp_path / "fresh", programs())
    yield made.start()
    made.stop()


def test_two_commands_install_a_queue_and_what_goes_leaves_the_definitions(
    fresh: KwokCluster, tmp_path: Path
) -> None:
    """The operator's pod is played: what it would make of the queue is for other tests."""
    former = tmp_path / "former"
    shutil.copytree(OPERATOR, former)
    definition = former / "files/crds/subjects.yaml"
    definition.write_text(definition.read_text().replace("    - subj\n", "    - subj\n    - former\n"))
    place, queues = ("--namespace", "tidemill-system"), ("--namespace", "queues")
    wait = ("--wait", "--timeout=90s")

    done(
        fresh,
        "install",
        "tidemill-operator",
        str(former),
        *place,
        "--create-namespace",
        "--wait",
        "--timeout=90s",
    )
    done(fresh, "install", "queue", str(QUEUE), *queues, "--create-namespace", *wait)
    before = names_of(fresh)
    done(
        fresh,
        "upgrade",
        "tidemill-operator",
        str(OPERATOR),
        *place,
        "--set=image.tag=next",
        "--wait",
        "--timeout=90s",
    )
    after = names_of(fresh)
    (pod,) = fresh.json("get", "pods", *place)["items"]
    groups = {one["metadata"]["name"] for one in fresh.json("get", "brokergroups", *queues)["items"]}

    assert ("former" in before, "former" in after) == (True, False)
    assert pod["spec"]["containers"][0]["image"].endswith(":next")
    assert groups == {"queue-g0", "queue-later"}
    assert may(fresh, "patch", "subjects", "--subresource=status", "--namespace=queues")
    assert may(fresh, "create", "statefulsets.apps", "--namespace=queues")
    assert may(fresh, "get", "secrets", "--namespace=queues"), "those that QueueClusters and Grants name"
    for words in (
        ("list", "secrets"),
        ("watch", "secrets"),
        ("create", "roles.rbac.authorization.k8s.io"),
        ("delete", "nodes"),
        ("*", "*"),
    ):
        assert not may(fresh, *words, "--namespace=queues"), words

    done(fresh, "uninstall", "queue", *queues, *wait)
    done(fresh, "uninstall", "tidemill-operator", *place, *wait)
    assert names_of(fresh) == after
    assert fresh.json("get", "clusterroles", "-l", "app.kubernetes.io/part-of=tidemill")["items"] == []


def done(cluster: KwokCluster, *words: str) -> None:
    said = cluster.helm(*words)
    assert said.returncode == 0, said.stderr


def names_of(cluster: KwokCluster) -> list[str]:
    """Short names of subjects, as the definition in the cluster has them."""
    found: list[str] = cluster.json("get", "crd", "subjects.tidemill.dev")["spec"]["names"]["shortNames"]
    return found


def may(cluster: KwokCluster, *words: str) -> bool:
    """Whether the operator may."""
    account = "system:serviceaccount:tidemill-system:tidemill-operator"
    return cluster.kubectl("auth", "can-i", *words, f"--as={account}").returncode == 0
