"""Finds the Java program that runs both Spark and the Kafka brokers that mirrord starts on this machine for demos and
tests (`mirrord.lab`)."""

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from mirrord.model.errors import EnvironmentFault
from mirrord.runtime.process_hardening import bare_environment

OLDEST_JAVA = 17
NEEDED = f"the lab needs Java {OLDEST_JAVA} or newer to run Kafka"


def find_java(needed: str = NEEDED) -> str:
    """Return the path of the Java program in JAVA_HOME or, if that variable is not set, on the PATH.

    Raises EnvironmentFault if there is no such program, or if it is older than `OLDEST_JAVA`. The message is one line.
    It begins with `needed`, which says what needs Java, such as "Spark needs Java 17 or newer".
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        raise EnvironmentFault(f"{needed}, and there is no java on the PATH")
    return _checked(java, needed)


@cache
def _checked(java: str, needed: str) -> str:
    try:
        answer = subprocess.run(
            [java, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            env=bare_environment(),
            check=False,
        )
    except OSError as error:
        raise EnvironmentFault(f"{needed}, but {java} does not start: {error.strerror}") from None
    release = java_release(answer.stderr)
    if release is None:
        raise EnvironmentFault(f"{needed}, and {java} does not say which Java it is")
    if release < OLDEST_JAVA:
        raise EnvironmentFault(f"{needed}; {java} is Java {release}")
    return java


def java_release(settings: str) -> int | None:
    """Return the Java release (8, 17, 21 ...) in the output of `java -XshowSettings:properties`. Return None if the
    output contains no release."""
    found = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", settings, re.MULTILINE)
    return int(found[1]) if found else None
