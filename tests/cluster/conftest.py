"""Clusters for tests, one of each kind for all of them; each test has a namespace of its own.

Those with a cluster run last: what it runs may be in the building meanwhile.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from cluster.build import programs
from cluster.cache import base
from cluster.kwok import KwokCluster
from cluster.prerequisites import Verdict, obstacle, verdict
from cluster.queue import BEFORE, IMAGE, VERSION
from cluster.real import RealCluster
from cluster.spark_operator import add_operator
from e2e.metas import Meta
from e2e.operators import Operator
from e2e.shops import Shop
from samples.scripts import ROOT
from tidemill_operator.kinds import OURS

MARKS = ("cluster", "real_cluster")
NODES = 3
FIRST_SECONDS = 2_700
"""For the first one of a kind, which may have to wait for a build on a slow machine, or for other tests' nodes."""
NUMBERS = count(1)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Behind what put them in random order, which stays."""
    place = {item: max((MARKS.index(mark.name) + 1 for mark in item.iter_markers() if mark.name in MARKS), default=0)
             for item in items}  # fmt: skip
    items.sort(key=place.__getitem__)
    for kind in sorted({place[item] for item in items} - {0}):
        first = next(item for item in items if place[item] == kind)
        first.add_marker(pytest.mark.timeout(FIRST_SECONDS))


def show(config: pytest.Config, text: str) -> None:
    """A line for whoever waits."""
    capture = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print(f"\n{text}", flush=True)


@pytest.fixture(scope="session")
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KwokCluster]:
    """Real API server, controllers and scheduler; nodes and pods are played. Its tests are marked ``cluster``."""
    built = programs(lambda text: show(request.config, text))
    made = KwokCluster(tmp_path_factory.mktemp("kwok") / "cluster", built)
    yield made.start()
    made.stop()


@pytest.fixture(scope="session")
def real_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealCluster]:
    """Three nodes with real pods. Its tests are marked ``real_cluster``; each has namespaces of its own."""
    need_nodes()

    def tell(text: str) -> None:
        show(request.config, text)

    made = RealCluster(tmp_path_factory.mktemp("real") / "cluster", programs(tell), NODES)
    yield made.start(tell)
    made.stop()


@pytest.fixture(scope="session")
def with_image(real_cluster: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> RealCluster:
    """That cluster, whose nodes have the image by the name that the charts know, and by that of a version before."""
    archive = built_image(tmp_path_factory.mktemp("image") / "tidemill.tar")
    real_cluster.import_image(archive)
    real_cluster.name_image(f"{IMAGE}:{VERSION}", f"{IMAGE}:{BEFORE}")
    archive.unlink()
    return real_cluster


@pytest.fixture(scope="session")
def with_spark(
    request: pytest.FixtureRequest, with_image: RealCluster, tmp_path_factory: pytest.TempPathFactory
) -> RealCluster:
    """That cluster, whose nodes have the image with Spark besides, and that of Spark's operator."""
    archive = built_image(tmp_path_factory.mktemp("spark") / "tidemill-spark.tar", "--spark")
    add_operator(archive, lambda text: show(request.config, text))
    with_image.import_image(archive)
    archive.unlink()
    return with_image


def built_image(archive: Path, *more: str) -> Path:
    """One of our images, on a base of Debian's packages, as every machine can have it."""
    options = [
        *more,
        "--debootstrap",
        "--install",
        "--cache",
        str(base() / "images"),
        "--output",
        str(archive),
    ]
    subprocess.run([sys.executable, str(ROOT / "images/build.py"), *options], check=True)
    return archive


def need_nodes() -> None:
    why = obstacle()
    match verdict(os.environ, why):
        case Verdict.FAIL:
            pytest.fail(why)
        case Verdict.SKIP:
            pytest.skip(why or "TIDEMILL_REAL_CLUSTER=0 leaves real nodes out")
        case Verdict.RUN:
            pass


@pytest.fixture
def namespace(cluster: KwokCluster) -> Iterator[str]:
    """In the cluster of played nodes; what is in it goes afterwards, and nobody waits for that."""
    name = f"test-{next(NUMBERS)}"
    cluster.ask("create", "namespace", name)
    yield name
    cluster.ask("delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="session")
def definitions(cluster: KwokCluster) -> None:
    """Our kinds, as the charts install them."""
    done = cluster.kubectl("apply", "--server-side", "-f", str(ROOT / "crds"))
    assert done.returncode == 0, done.stderr
    names = [f"crd/{one.plural}.{one.group}" for one in OURS]
    done = cluster.kubectl("wait", "--for=condition=Established", *names)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def meta(tmp_path: Path) -> Iterator[Meta]:
    """With two broker groups that are taken for alive, whoever they are."""
    made = Meta(
        tmp_path / "meta", settings={"TIDEMILL_META_LIVENESS_MS": "3600000", "TIDEMILL_META_LEASE_MS": "5000"}
    )
    made.start()
    for group in ("g0", "g1"):
        made.register(group, f"{group}-0")
        made.beat(
            group, f"{group}-0", epoch=1, state="RW", role="master", positions={"messages": 0, "actions": 0}
        )
    yield made
    made.close()


@pytest.fixture
def shop(cluster: KwokCluster, namespace: str, definitions: None, meta: Meta) -> Shop:
    return Shop(cluster, namespace, meta.server)


@pytest.fixture
def operator(shop: Shop, tmp_path: Path) -> Iterator[Operator]:
    made = Operator(tmp_path / "operator", shop.cluster.kubeconfig, [shop.namespace])
    made.start().wait_working()
    yield made
    made.close()
