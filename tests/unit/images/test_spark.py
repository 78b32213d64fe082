"""What a container with Spark begins with: the words that Spark gives it, and its variables, as a command."""

from __future__ import annotations

import pytest

from samples.scripts import script

spark = script("images/spark.py")
GIVEN = {
    "SPARK_HOME": "/opt/tidemill/spark",
    "SPARK_DRIVER_BIND_ADDRESS": "10.0.0.7",
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "2048m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.9",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "executor-3",
}


def test_a_driver_submits_in_its_own_pod() -> None:
    words = spark.command(
        ["driver", "--properties-file", "p", "local:///opt/tidemill/jobs/archive.py"], GIVEN
    )

    assert words[0] == "/opt/tidemill/spark/bin/spark-submit"
    assert "spark.driver.bindAddress=10.0.0.7" in words
    assert words[words.index("--deploy-mode") + 1] == "client"
    assert words[-3:] == ["--properties-file", "p", "local:///opt/tidemill/jobs/archive.py"]


def test_an_executor_is_a_jvm_that_knows_its_driver() -> None:
    options = {"SPARK_JAVA_OPT_10": "-Dtenth", "SPARK_JAVA_OPT_2": "-Dsecond", "JAVA_HOME": "/opt/java"}
    words = spark.command(["executor"], {**GIVEN, **options, "SPARK_CONF_DIR": "/opt/spark/conf"})

    assert words[0] == "/opt/java/bin/java"
    assert words.index("-Dsecond") < words.index("-Dtenth") < words.index("-Xmx2048m")
    assert words[words.index("-cp") + 1] == "/opt/spark/conf:/opt/tidemill/spark/jars/*"
    asked = words[words.index(spark.EXECUTOR) + 1 :]
    assert dict(zip(asked[::2], asked[1::2], strict=True))["--podName"] == "executor-3"


def test_anything_else_is_run_as_it_is() -> None:
    assert spark.command(["tidemill", "--version"], {}) == ["tidemill", "--version"]


@pytest.mark.parametrize(
    "word, name", [("driver", "SPARK_DRIVER_BIND_ADDRESS"), ("executor", "SPARK_DRIVER_URL")]
)
def test_what_spark_has_not_said_is_named(word: str, name: str) -> None:
    environment = {key: value for key, value in GIVEN.items() if key != name}

    with pytest.raises(spark.NotGiven, match=name):
        spark.command([word], environment)
