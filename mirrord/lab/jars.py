"""Downloads the jars of Apache Kafka, by name and version, with the Ivy jar that pyspark includes.

Ivy's default settings decide where the jars come from. In a network that uses another repository, MIRRORD_IVY_SETTINGS
names an Ivy settings file. A proxy or a trust store is configured in Java (JAVA_TOOL_OPTIONS).
"""

import fcntl
import importlib.util
import os
import re
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import quoteattr

from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.runtime.java import find_java

KAFKA_VERSION = "4.3.0"
_VERSION = re.compile(r"\d+\.\d+\.\d+")
# Kafka logs through slf4j, and its libraries name no backend. Without one, a failing broker logs nothing.
_LOGGING = ("org.slf4j", "slf4j-simple", "1.7.36")


class Bundle(NamedTuple):
    """Jars that are downloaded together."""

    folder: str
    """Name of the folder in the cache, to which the version is appended."""
    module: str
    """The module of `org.apache.kafka` that depends on all others."""
    what: str
    classifier: str = ""
    """Classifier of the jar. If it is set, only this jar is downloaded, without its dependencies."""

    def jar(self, version: str) -> str:
        """Return the file name of the module's own jar."""
        return f"{self.module}-{version}{'-' if self.classifier else ''}{self.classifier}.jar"


BROKER = Bundle("kafka", "kafka_2.13", "Apache Kafka")
MIRROR_MAKER = Bundle("mirror-maker", "connect-mirror", "MirrorMaker 2 of Apache Kafka")
TIERED_STORAGE = Bundle("tiered-storage", "kafka-storage", "the storage tests of Apache Kafka", "test")
"""LocalTieredStorage: remote storage in a local folder (0.6 MB). It runs inside a broker."""


def cache_folder() -> Path:
    """Return the folder for the lab's downloads: MIRRORD_CACHE, else `mirrord` in the user's cache folder."""
    override = os.environ.get("MIRRORD_CACHE")
    if override:
        return Path(override).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "mirrord"


def kafka_jars(version: str = KAFKA_VERSION, bundle: Bundle = BROKER) -> Path:
    """Return the folder with all jars of a bundle of this version. They are downloaded if they are missing (a broker is
    44 MB, MirrorMaker 2 is 35 MB).

    It is safe for several processes to call this at once: one downloads, the others wait. Raises EnvironmentFault, and
    ConfigError if the version is not valid.
    """
    if not _VERSION.fullmatch(version):
        raise ConfigError(f'"{version}" is not a version of Apache Kafka; one looks like {KAFKA_VERSION}')
    cache = cache_folder()
    jars = cache / f"{bundle.folder}-{version}"
    if jars.is_dir():
        return jars
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentFault(f"the cache folder {cache} cannot be made: {error.strerror}") from None
    with locked(cache / f"{bundle.folder}-{version}.lock"):
        if not jars.is_dir():
            _download(version, bundle, jars)
    return jars


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Hold a lock that only one process at a time can hold."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _download(version: str, bundle: Bundle, jars: Path) -> None:
    """Download into a temporary folder, and move it into place in one step once it is complete."""
    java, ivy = find_java(), find_ivy()
    with tempfile.TemporaryDirectory(prefix="download-", dir=jars.parent) as name:
        folder = Path(name)
        module = folder / "ivy.xml"
        module.write_text(ivy_module(version, bundle))
        settings = os.environ.get("MIRRORD_IVY_SETTINGS")
        command = [java, "-jar", str(ivy), *(("-settings", settings) if settings else ()), "-ivy", str(module)]
        command += ["-cache", str(folder / "cache")]
        command += ["-retrieve", str(folder / "jars" / "[artifact]-[revision](-[classifier]).[ext]")]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        if answer.returncode != 0 or not (folder / "jars" / bundle.jar(version)).is_file():
            reason = ivy_complaint(answer.stdout + answer.stderr)
            raise EnvironmentFault(f"{bundle.what} {version} could not be downloaded: {reason}")
        (folder / "jars").rename(jars)


def find_ivy() -> Path:
    """Return the Ivy jar inside the installed pyspark, without importing pyspark. Raises EnvironmentFault."""
    spec = importlib.util.find_spec("pyspark")
    folders = (spec.submodule_search_locations if spec else None) or []
    for folder in folders:
        for jar in sorted((Path(folder) / "jars").glob("ivy-*.jar")):
            return jar
    raise EnvironmentFault("the lab downloads Kafka with the Ivy jar inside pyspark, and pyspark is not installed")


def ivy_module(version: str, bundle: Bundle = BROKER) -> str:
    """Return the Ivy file that requests a bundle of this version and all its runtime dependencies."""
    modules = [("org.apache.kafka", bundle.module, version), _LOGGING]
    wanted = "".join(_dependency(*module, "default->master,runtime(default)") for module in modules)
    if bundle.classifier:
        artifact = f'<artifact name={quoteattr(bundle.module)} type="jar" m:classifier={quoteattr(bundle.classifier)}/>'
        wanted = _dependency(*modules[0], "default->master", artifact)
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">\n'
        '  <info organisation="mirrord" module="lab"/>\n'
        f"  <dependencies>\n{wanted}  </dependencies>\n"
        "</ivy-module>\n"
    )


def _dependency(organisation: str, name: str, revision: str, conf: str, artifact: str = "") -> str:
    module = f"org={quoteattr(organisation)} name={quoteattr(name)} rev={quoteattr(revision)}"
    return f"    <dependency {module} conf={quoteattr(conf)}>{artifact}</dependency>\n"


def ivy_complaint(output: str) -> str:
    """Return the line of Ivy's output that best describes why it failed."""
    lines = [line.strip(" :\t") for line in output.splitlines()]
    for phrase in ("Exception", "Server access error", "not found", "FAILED", "rror"):
        for line in lines:
            if phrase in line:
                return line
    return next((line for line in reversed(lines) if line), "Ivy said nothing")
