"""Downloads Apache Kafka's jars by name and version. The download is performed by Apache Ivy, a dependency manager
whose jar is part of the pyspark package.

By default, Ivy's own settings determine the repository from which the jars are downloaded. To use another repository,
set the environment variable MIRRORD_IVY_SETTINGS to the path of an Ivy settings file. To use a proxy or a trust store,
set Java options in JAVA_TOOL_OPTIONS.
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
# Kafka logs through slf4j, but its libraries include no logging backend. Without a backend, a failing broker would log
# nothing.
_LOGGING = ("org.slf4j", "slf4j-simple", "1.7.36")


class Bundle(NamedTuple):
    """A set of jars that is downloaded in one step."""

    folder: str
    """Name of the folder in the cache. The version is appended to the name."""
    module: str
    """The module of `org.apache.kafka` that is downloaded with its dependencies."""
    what: str
    classifier: str = ""
    """Classifier of the jar. If it is set, only the jar with this classifier is downloaded, without dependencies."""

    def jar(self, version: str) -> str:
        """Return the file name of the module's own jar."""
        return f"{self.module}-{version}{'-' if self.classifier else ''}{self.classifier}.jar"


BROKER = Bundle("kafka", "kafka_2.13", "Apache Kafka")
MIRROR_MAKER = Bundle("mirror-maker", "connect-mirror", "MirrorMaker 2 of Apache Kafka")
TIERED_STORAGE = Bundle("tiered-storage", "kafka-storage", "the storage tests of Apache Kafka", "test")
"""Contains LocalTieredStorage, a broker plug-in that keeps the remote part of logs in a local folder (0.6 MB)."""


def cache_folder() -> Path:
    """Return the folder for the lab's downloads: MIRRORD_CACHE if it is set, and otherwise `mirrord` in the user's
    cache folder."""
    override = os.environ.get("MIRRORD_CACHE")
    if override:
        return Path(override).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "mirrord"


def kafka_jars(version: str = KAFKA_VERSION, bundle: Bundle = BROKER) -> Path:
    """Return the folder with all jars of this version of a bundle. If the folder does not exist, the jars are
    downloaded first (44 MB for a broker, 35 MB for MirrorMaker 2).

    Several processes may call this function at once. One of them downloads the jars, and the others wait. Raises
    EnvironmentFault. Raises ConfigError if the version is not valid.
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
        raise EnvironmentFault(f"the cache folder {cache} cannot be created: {error.strerror}") from None
    with locked(cache / f"{bundle.folder}-{version}.lock"):
        if not jars.is_dir():
            _download(version, bundle, jars)
    return jars


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Hold a file lock that only one process at a time can hold."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _download(version: str, bundle: Bundle, jars: Path) -> None:
    """Download to a temporary folder. When the download is complete, rename the folder to `jars`."""
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
    """Return the path of the Ivy jar inside the installed pyspark, without importing pyspark. Raises
    EnvironmentFault."""
    spec = importlib.util.find_spec("pyspark")
    folders = (spec.submodule_search_locations if spec else None) or []
    for folder in folders:
        for jar in sorted((Path(folder) / "jars").glob("ivy-*.jar")):
            return jar
    raise EnvironmentFault("the lab downloads Kafka with the Ivy jar inside pyspark, and pyspark is not installed")


def ivy_module(version: str, bundle: Bundle = BROKER) -> str:
    """Return the text of an `ivy.xml` file that requests this version of a bundle, with its runtime dependencies. If
    the bundle has a classifier, the file requests only one jar."""
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
    """Return the line of Ivy's output that best describes why Ivy failed."""
    lines = [line.strip(" :\t") for line in output.splitlines()]
    for phrase in ("Exception", "Server access error", "not found", "FAILED", "rror"):
        for line in lines:
            if phrase in line:
                return line
    return next((line for line in reversed(lines) if line), "Ivy said nothing")
