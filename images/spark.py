"""What a container of the image with Spark begins with: Spark's wheel has no entrypoint for Kubernetes of its own.

Spark gives a driver and an executor a word, ``driver`` or ``executor``, and the rest in variables. Everything else is a
command, which is run as it is.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

EXECUTOR = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
JAVA_OPTION = "SPARK_JAVA_OPT_"


class NotGiven(Exception):
    """A variable that Spark sets is missing."""


def command(words: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """What is run for these words."""
    if words[:1] == ["driver"]:
        return driver(words[1:], environment)
    if words[:1] == ["executor"]:
        return executor(environment)
    return list(words) or [sys.executable]


def driver(words: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """spark-submit in this pod, which the program's own words follow."""
    address = given(environment, "SPARK_DRIVER_BIND_ADDRESS")
    return [
        f"{given(environment, 'SPARK_HOME')}/bin/spark-submit",
        "--conf", f"spark.driver.bindAddress={address}",
        "--conf", f"spark.executorEnv.SPARK_DRIVER_POD_IP={address}",
        "--deploy-mode", "client",
        *words,
    ]  # fmt: skip


def executor(environment: Mapping[str, str]) -> list[str]:
    """A JVM that asks the driver for work."""
    memory = given(environment, "SPARK_EXECUTOR_MEMORY")
    said = {
        "--driver-url": "SPARK_DRIVER_URL",
        "--executor-id": "SPARK_EXECUTOR_ID",
        "--cores": "SPARK_EXECUTOR_CORES",
        "--app-id": "SPARK_APPLICATION_ID",
        "--hostname": "SPARK_EXECUTOR_POD_IP",
        "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
        "--podName": "SPARK_EXECUTOR_POD_NAME",
    }
    return [
        java(environment),
        *java_options(environment),
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        class_path(environment),
        EXECUTOR,
        *(word for option, name in said.items() for word in (option, given(environment, name))),
    ]


def java_options(environment: Mapping[str, str]) -> list[str]:
    """In the order of their numbers."""
    numbered = {
        int(name.removeprefix(JAVA_OPTION)): value
        for name, value in environment.items()
        if name.startswith(JAVA_OPTION) and name.removeprefix(JAVA_OPTION).isdigit()
    }
    return [numbered[number] for number in sorted(numbered)]


def class_path(environment: Mapping[str, str]) -> str:
    """Folders of settings first, then Spark's own."""
    before = (environment.get(name, "") for name in ("SPARK_CONF_DIR", "HADOOP_CONF_DIR"))
    after = (environment.get(name, "") for name in ("SPARK_EXTRA_CLASSPATH", "SPARK_DIST_CLASSPATH"))
    own = f"{given(environment, 'SPARK_HOME')}/jars/*"
    return ":".join(one for one in (*before, own, *after) if one)


def java(environment: Mapping[str, str]) -> str:
    home = environment.get("JAVA_HOME", "")
    return f"{home}/bin/java" if home else "java"


def given(environment: Mapping[str, str], name: str) -> str:
    if name not in environment:
        raise NotGiven(f"{name} is not set: Spark sets it in the pods that it makes")
    return environment[name]


def main() -> None:
    try:
        words = command(sys.argv[1:], os.environ)
    except NotGiven as error:
        sys.exit(f"tidemill: {error}")
    os.execvp(words[0], words)  # noqa: S606  # what the pod says


if __name__ == "__main__":
    main()
