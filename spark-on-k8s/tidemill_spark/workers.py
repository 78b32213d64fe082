"""Who does the tasks of a run: processes of this machine, or Spark's executors. A task and its result are values.

Spark is given one job a task, from as many threads as it has cores: it repeats a task whose executor went, and a result
is there as soon as its task is done. What an attempt wrote whose result was not heard is in no commit.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from tidemill_spark.errors import StoreFailed

Task = TypeVar("Task")
Result = TypeVar("Result")

LOCAL_MEMORY = "1g"


class Workers:
    """``width``: how many tasks are done at once."""

    def __init__(self, executor: Executor, width: int, context: Any = None) -> None:
        self.width = width
        self._executor = executor
        self._context = context

    def each(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[tuple[Task, Result]]:
        """Results as they come. The first failure ends it; what was not begun by then is not."""
        done = partial(_on_spark, self._context, work) if self._context is not None else work
        futures = {self._executor.submit(done, task): task for task in tasks}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenExecutor as error:
            raise StoreFailed(
                "a worker was killed, as when memory runs out: what was committed stays; take fewer --workers"
            ) from error
        finally:
            for future in futures:
                future.cancel()


@contextmanager
def processes(width: int | None = None) -> Generator[Workers]:
    """Processes of this machine. They are started anew and not forked: Arrow has threads."""
    width = width or os.cpu_count() or 1
    with ProcessPoolExecutor(width, multiprocessing.get_context("spawn")) as executor:
        yield Workers(executor, width)


@contextmanager
def on_spark(session: Any) -> Generator[Workers]:
    """Executors of a Spark session, which stays."""
    context = session.sparkContext
    width = int(context.defaultParallelism)
    with ThreadPoolExecutor(width, "tidemill-tasks") as executor:
        yield Workers(executor, width, context)


def spark_session(name: str, conf: dict[str, str] | None = None) -> Any:
    """The session that spark-submit has begun, or one on this machine. Tasks run in the same Python as this, unless
    ``PYSPARK_PYTHON`` names another.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    sql: Any = importlib.import_module("pyspark.sql")
    builder = sql.SparkSession.builder.appName(name)
    for key, value in (conf or {}).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def local_conf(width: int | None = None) -> dict[str, str]:
    """What makes a session on this machine quiet and quick."""
    return {
        "spark.master": f"local[{width or '*'}]",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": LOCAL_MEMORY,
        "spark.sql.shuffle.partitions": "4",
        "spark.ui.showConsoleProgress": "false",
    }


def _on_spark(context: Any, work: Callable[[Task], Result], task: Task) -> Result:
    result: Result = context.parallelize([task], 1).map(work).collect()[0]
    return result
