"""Creates the data folders of new nodes. Their contents are the same as if Kafka's storage tool had created them.

The storage tool is a Java program that takes seconds of CPU time. Its output for different nodes and clusters differs
only in three ids. A process that starts several lab clusters therefore runs the tool only once for each Kafka version
and set of users. Further data folders are copies of the tool's output with different ids.
"""

import base64
import subprocess
import threading
import uuid
from collections.abc import Sequence
from pathlib import Path

from mirrord.model.errors import EnvironmentFault

_META = "meta.properties"
_lock = threading.Lock()
_made: dict[tuple[str, ...], dict[str, bytes]] = {}


def new_id() -> str:
    """Return a new id for a cluster or a data folder in Kafka's format: 16 bytes in base64, without a leading dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text


def format_folder(
    tool: Sequence[str], credentials: Sequence[str], config: Path, data: Path, ids: tuple[str, int]
) -> None:
    """Create the data folder `data` of a node. `ids` contains the cluster's id and the node's id.

    `tool` is the command of the storage tool, and `credentials` contains the tool's values for --add-scram. `config` is
    the path of the node's server.properties, in which log.dirs is `data`. Raises EnvironmentFault if the tool fails.
    """
    with _lock:
        key = (*tool, "", *credentials)
        if key not in _made:
            _run(tool, credentials, config)
            _made[key] = {path.name: path.read_bytes() for path in data.iterdir()}
    cluster_id, node_id = ids
    mine = {"cluster.id": cluster_id, "node.id": str(node_id), "directory.id": new_id()}
    data.mkdir(exist_ok=True)
    for name, content in _made[key].items():
        (data / name).write_bytes(_with_ids(content, mine) if name == _META else content)


def _with_ids(meta: bytes, ids: dict[str, str]) -> bytes:
    """Return the contents of a properties file with its ids replaced by these ids."""
    lines: list[str] = []
    for line in meta.decode("latin-1").splitlines():
        name = line.partition("=")[0]
        lines.append(f"{name}={ids[name]}" if name in ids else line)
    return "\n".join([*lines, ""]).encode("latin-1")


def _run(tool: Sequence[str], credentials: Sequence[str], config: Path) -> None:
    command = [*tool, f"--cluster-id={new_id()}", "--config", str(config)]
    for credential in credentials:
        command += ["--add-scram", credential]
    answer = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if answer.returncode != 0:
        output = (answer.stdout + answer.stderr).strip()
        raise EnvironmentFault(f"Kafka's storage tool refuses the settings of the lab:\n{output}")
