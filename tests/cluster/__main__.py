"""``python -m cluster build``: the programs; ``… up`` and ``… down``: a real cluster to look at."""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
import threading

from cluster.build import programs, sources, words
from cluster.cache import base, folder_of, is_complete, news_path
from cluster.prerequisites import CannotHaveNodes, obstacle
from cluster.real import RealCluster, Taken, current
from cluster.toolchain import CannotBuild

TOLD = """\
a cluster of {nodes} real nodes is up; what to type next:

  export KUBECONFIG={cluster.kubeconfig}
  export PATH={bin}:$PATH
  kubectl get nodes
  kubectl get pods --all-namespaces

the power cord of a node:  kill -9 $(cut -d' ' -f1 {cluster.folder}/processes/node-0)
and back again:            make cluster-on NODE=node-0
when you are done:         make cluster-down"""
POLITENESS = 10
"""Beside tests with real clocks a build takes what they leave."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="build what clusters run, unless it is there")
    build.add_argument(
        "--beside", type=int, metavar="PID", help="in the background, for as long as that process lives"
    )
    up = commands.add_parser("up", help="bring a real cluster up, which stays until `down`")
    up.add_argument("--nodes", type=int, default=3)
    commands.add_parser("down", help="take away the real cluster that is up, or what a crash has left of one")
    on = commands.add_parser("power-on", help="boot a node whose power was cut")
    on.add_argument("node")
    given = parser.parse_args()
    try:
        match given.command:
            case "up":
                bring_up(given.nodes)
            case "down":
                take_down()
            case "power-on":
                power_on(given.node)
            case _ if given.beside is not None:
                begin_beside(given.beside)
            case _:
                print(programs())
    except (CannotBuild, CannotHaveNodes, Taken) as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 1
    return 0


def bring_up(nodes: int) -> None:
    if why := obstacle():
        raise CannotHaveNodes(why)
    built = programs()
    cluster = RealCluster(base() / "cluster", built, nodes, bound=False).start()
    print(TOLD.format(cluster=cluster, nodes=len(cluster.nodes), bin=cluster.bin))


def take_down() -> None:
    owner = current()
    if owner is None:
        print("there is no real cluster on this machine")
    elif why := obstacle():
        raise CannotHaveNodes(why)
    else:
        RealCluster(owner.folder, owner.folder, 0).stop()
        print(f"it is gone; its logs are in {owner.folder}/log")


def power_on(name: str) -> None:
    owner = current()
    names = sorted(path.name for path in (owner.folder / "nodes").iterdir()) if owner is not None else []
    if owner is None or name not in names:
        raise Taken(
            f"there is no node {name} on this machine: {', '.join(names) or '`make cluster` makes some'}"
        )
    RealCluster(owner.folder, programs(), len(names), bound=False).power_on(name)


def begin_beside(pid: int) -> None:
    """Begin a build that ends when that process does, if there is something to build; and go on."""
    folder = folder_of(sources(), words())
    if is_complete(folder):
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    print(f"Kubernetes for tests is built beside this; {news_path(folder)} has the news", flush=True)
    if os.fork():
        return
    os.setsid()
    silence = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(silence, number)
    os.nice(POLITENESS)
    threading.Thread(target=end_with, args=(pid,), daemon=True).start()
    code = 1
    try:
        programs(lambda _: None)
        code = 0
    except CannotBuild as error:
        with news_path(folder).open(
            "a"
        ) as news:  # whoever needs the programs will try, and fail, by themselves
            news.write(f"{error}\n")
    finally:
        os._exit(code)


def end_with(pid: int) -> None:
    """This process, and all that it began, which are its group."""
    try:
        select.select([os.pidfd_open(pid)], [], [])
    except ProcessLookupError:
        pass  # it has ended already
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
