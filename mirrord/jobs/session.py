"""A Spark session for a job of ours: on this machine, quiet and closed to others, unless settings say otherwise."""

# pyright: reportMissingTypeStubs=false

import os
import re
import sys
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from mirrord.model.errors import EnvironmentFault
from mirrord.runtime.java import OLDEST_JAVA, find_java

LOCAL = "local[*]"
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties").as_uri()
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Is set by spark-submit: the way to the Java that it has started (pyspark.java_gateway)."""
_RAISED = re.compile(r"[\w.]*(Error|Exception|Fault|Exit|Interrupt)(: |$)")
_CLOSED = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
}
"""Of a session on this machine: it listens to nobody else."""
_QUIET = {"spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG_SETTINGS}"}
"""The start of a session, or that there is none, leaves no lines of Spark on the terminal."""


@contextmanager
def open_session(name: str, settings: Mapping[str, str]) -> Generator[Any]:
    """A session; `settings` are Spark's own, `spark.master` among them. One that runs in this process already is taken
    as it is, and goes on. Raises EnvironmentFault in one line.
    """
    # spark-submit has chosen the master, and all that a Java must know before it starts.
    is_submitted = _SUBMITTED in os.environ
    master = settings.get("spark.master", "what spark-submit was told" if is_submitted else LOCAL)
    find_java(f"Spark needs Java {OLDEST_JAVA} or newer")
    # The workers have what we have.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Spark has no public way to ask; the session that is active is a matter of the thread.
    is_shared = SparkContext._active_spark_context is not None  # pyright: ignore[reportPrivateUsage]
    builder: Any = SparkSession.builder
    for key, value in merged_settings(settings, is_submitted=is_submitted).items():
        builder = builder.config(key, value)
    with tempfile.TemporaryFile() as words:
        try:
            with _quiet_start(words):
                session = builder.appName(name).getOrCreate()
        except Exception as error:  # Java's errors have no common base with Spark's own
            why = _last_line(words) if "JAVA_GATEWAY_EXITED" in str(error) else ""
            raise EnvironmentFault(f"no Spark session at {master}: {_line(error)}{why}") from error
    try:
        if not is_shared:
            session.sparkContext.setLogLevel("FATAL")
        yield session
    except PySparkException as error:
        raise EnvironmentFault(f"the job at {master} failed: {_line(error)}") from error
    finally:
        if not is_shared:
            session.stop()


def merged_settings(settings: Mapping[str, str], *, is_submitted: bool) -> dict[str, str]:
    """What a session is made with: ours where nothing else is said; nothing of ours where spark-submit has begun it."""
    if is_submitted:
        return dict(settings)
    master = settings.get("spark.master", LOCAL)
    return _QUIET | (_CLOSED if master.startswith("local") else {}) | {"spark.master": master} | dict(settings)


@contextmanager
def _quiet_start(words: IO[bytes]) -> Generator[None]:
    """Java warns of modules that Spark uses, and Spark tells of its log level, before anything can be said to them:
    what a Java that starts here has to say goes into a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(number) for number in (1, 2)]
    for number in (1, 2):
        os.dup2(words.fileno(), number)
    try:
        yield
    finally:
        for number, former in enumerate(kept, 1):
            os.dup2(former, number)
            os.close(former)


def _last_line(words: IO[bytes]) -> str:
    words.seek(0)
    lines = words.read().decode(errors="replace").splitlines()
    return f" ({lines[-1]})" if lines else ""


def _line(error: Exception) -> str:
    """What went wrong, without the traces around it."""
    if "stopped SparkContext" in str(error):
        return "the master does not answer, or takes no application"  # Spark gave up, and then somebody asked it
    lines = [line.strip(": \t") for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        lines = lines[1:]  # py4j's own words; what Java says follows
    ours = [line for line in lines if line.startswith("mirrord.") and ": " in line]
    if ours:
        return ours[-1].partition(": ")[2]
    # The end of a worker's trace, in front of those of Java.
    raised = [line for line in lines if _RAISED.match(line)] if lines and "Python worker" in lines[0] else []
    return raised[-1] if raised else lines[0] if lines else type(error).__name__
