"""Opens a Spark session for a mirrord job. Unless the settings say otherwise, the session runs on this machine, logs
nothing to the terminal, and accepts no other clients."""

# pyright: reportMissingTypeStubs=false

import os
import re
import sys
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway  # pyright: ignore[reportUnknownVariableType]
from pyspark.sql import SparkSession

from mirrord.config.jobs import SUBMITTED, SparkSettings
from mirrord.config.security import resolved_settings
from mirrord.model.errors import EnvironmentFault
from mirrord.runtime.java import OLDEST_JAVA, find_java

LOCAL = "local[*]"
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties").as_uri()
_RAISED = re.compile(r"[\w.]*(Error|Exception|Fault|Exit|Interrupt)(: |$)")
_CLOSED = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
}
"""Settings of a session that runs on this machine. With them, the session accepts no connections from other
machines."""
_AUTHENTICATED = {"spark.authenticate": "true"}
"""Settings of a session that runs in one Java process. It accepts no connections from processes that do not know the
secret that Spark generates. For `local-cluster`, Spark generates none (org.apache.spark.SecurityManager)."""
_QUIET = {"spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG_SETTINGS}"}
"""Settings that keep Spark's log messages off the terminal, whether or not the session starts."""


@contextmanager
def open_session(name: str, settings: SparkSettings) -> Generator[Any]:
    """Open a Spark session, which is stopped at the end of the context. `settings` are Spark properties, including
    `spark.master`. A session that is already running in this process is used unchanged and is not stopped. Raises
    EnvironmentFault with a one-line message.

    Secrets in the settings do not appear in the arguments of a process, which every user of the machine can read.
    """
    # If spark-submit has started Java, it has chosen the master and everything else that must be set before Java
    # starts.
    is_submitted = SUBMITTED in os.environ
    master = str(settings.get("spark.master", "the options of spark-submit" if is_submitted else LOCAL))
    find_java(f"Spark needs Java {OLDEST_JAVA} or newer")
    # Spark workers use the same Python as this process.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # No public API says whether this process has a SparkContext. The active session does not show this either, because
    # each thread has its own.
    is_shared = SparkContext._active_spark_context is not None  # pyright: ignore[reportPrivateUsage]
    merged = merged_settings(settings, is_submitted=is_submitted)
    whole = resolved_settings(merged)
    builder: Any = SparkSession.builder
    for key, value in whole.items():
        builder = builder.config(key, value)
    with tempfile.TemporaryFile() as words:
        try:
            with _quiet_start(words):
                if merged != whole and not is_shared:
                    _start_java(name, merged, whole)
                session = builder.appName(name).getOrCreate()
        except Exception as error:  # Java's errors and Spark's have no common base class
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


def merged_settings(settings: SparkSettings, *, is_submitted: bool) -> SparkSettings:
    """Return the settings of a new session: the given ones, and mirrord's defaults for all others. If spark-submit has
    started Java, only the given settings are returned, because spark-submit has already chosen all others."""
    if is_submitted:
        return dict(settings)
    master = str(settings.get("spark.master", LOCAL))
    closed = _CLOSED if master.startswith("local") else {}
    authenticated = _AUTHENTICATED if master == "local" or master.startswith("local[") else {}
    return _QUIET | closed | authenticated | {"spark.master": master} | dict(settings)


def _start_java(name: str, merged: SparkSettings, whole: Mapping[str, str]) -> None:
    """Start Java without the secrets, and then a SparkContext with them.

    PySpark passes all settings that are known when Java starts to spark-submit as arguments (pyspark.java_gateway).
    """
    known = [(key, value) for key, value in merged.items() if isinstance(value, str)]
    gateway: Any = launch_gateway(SparkConf(loadDefaults=False).setAll(known))
    # SparkConf needs the Java process, which the gateway has started, to load Spark's defaults.
    conf = SparkConf(_jvm=gateway.jvm).setAll(list(whole.items()))
    SparkContext(conf=conf.setAppName(name), gateway=gateway)


@contextmanager
def _quiet_start(words: IO[bytes]) -> Generator[None]:
    """Redirect stdout and stderr to a file while Java starts. At that time, Java warns about modules that Spark uses,
    and Spark reports its log level. Neither message can be turned off."""
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
    """Return the cause of an error as one line, without stack traces."""
    if "stopped SparkContext" in str(error):
        # By now, Spark has given up connecting to the master.
        return "the master does not answer, or does not accept applications"
    lines = [line.strip(": \t") for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        lines = lines[1:]  # py4j's own message; Java's message follows
    ours = [line for line in lines if line.startswith("mirrord.") and ": " in line]
    if ours:
        return ours[-1].partition(": ")[2]
    # This is the end of a worker's Python traceback. Java's stack traces follow it.
    raised = [line for line in lines if _RAISED.match(line)] if lines and "Python worker" in lines[0] else []
    return raised[-1] if raised else lines[0] if lines else type(error).__name__
