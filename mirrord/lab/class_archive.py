"""An archive of a broker's classes (JEP 350). A broker that starts with it needs half the CPU time to start.

`create` makes the archive once for each Kafka and each Java. A cluster uses it if it exists. If the
archive does not fit, Java ignores it.
"""

import os
import subprocess
import tempfile
from pathlib import Path

from mirrord.lab.cluster import Cluster
from mirrord.lab.jars import kafka_jars, locked
from mirrord.lab.server_properties import LabOptions, class_archive
from mirrord.model.errors import EnvironmentFault
from mirrord.runtime.java import find_java

_TRY_SECONDS = 120


def create() -> None:
    """Create the archive if it does not exist: start a broker that writes its classes when it ends.

    It is safe for several processes to call this at once. Raises EnvironmentFault.
    """
    java, jars = find_java(), kafka_jars()
    archive = class_archive(java, jars)
    with locked(archive.with_suffix(".lock")):
        if archive.exists():
            return
        # A broker that is started with half an archive crashes, so it only gets the name after it was tried.
        unfinished = archive.with_suffix(f".{os.getpid()}")
        try:
            with Cluster(LabOptions(java_options=(f"-XX:ArchiveClassesAtExit={unfinished}",))) as cluster:
                cluster.stop()
            _try(java, jars, unfinished)
            unfinished.replace(archive)
        finally:
            unfinished.unlink(missing_ok=True)


def _try(java: str, jars: Path, archive: Path) -> None:
    """Run a small tool of Kafka with the archive. Raises EnvironmentFault if Java does not take it."""
    options = [
        "-Xshare:on",
        "-XX:+VerifySharedSpaces",
        f"-XX:SharedArchiveFile={archive}",
        "-XX:-CreateCoredumpOnCrash",
    ]
    command = [java, *options, "-cp", f"{jars}/*", "kafka.tools.StorageTool", "random-uuid"]
    with tempfile.TemporaryDirectory() as folder:  # Java writes a report of a crash there
        code = subprocess.run(command, cwd=folder, capture_output=True, timeout=_TRY_SECONDS, check=False).returncode
    if code:
        raise EnvironmentFault(
            f"Java does not take the classes that a broker has written to {archive} (exit code {code})"
        )
