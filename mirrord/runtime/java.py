"""Finds the Java installation with which Spark and the lab's brokers run."""

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from mirrord.model.errors import EnvironmentFault

OLDEST_JAVA = 17
NEEDED = f"the lab needs Java {OLDEST_JAVA} or newer to run Kafka"


def find_java(needed: str = NEEDED) -> str:
    """Return the path of a Java that is new enough. The path is from JAVA_HOME if that variable is set, and otherwise
    from the PATH.

    Raises EnvironmentFault with a message of one line, which begins with `needed`.
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
            [java, "-XshowSettings:properties", "-version"], capture_output=True, text=True, check=False
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
