"""`mirrord lab up|down|status`: runs two real Kafka clusters on this machine for experiments."""

import argparse
import json
from pathlib import Path

from mirrord.cli.arguments import Verbs, add_verb
from mirrord.lab import cluster_pair
from mirrord.lab.jars import KAFKA_VERSION
from mirrord.lab.server_properties import LabOptions

_EPILOG = """The lab consists of two single-node clusters, source and target, on free ports on 127.0.0.1. They run until
`mirrord lab down`, which also removes their data. Java 17 or newer is needed. Kafka itself is downloaded once."""


def register(verbs: Verbs) -> None:
    """Add the parser for `mirrord lab`."""
    lab = add_verb(verbs, "lab", "Run two real Kafka clusters on this machine to try out mirrord.", _EPILOG)
    steps: Verbs = lab.add_subparsers(dest="lab_verb", metavar="VERB", required=True, title="verbs")
    up = add_verb(steps, "up", "Start both clusters, or show the addresses of running ones.")
    up.add_argument(
        "--kafka", default=KAFKA_VERSION, metavar="VERSION", help="version of Apache Kafka (default: %(default)s)"
    )
    up.add_argument("--heap-mb", type=int, default=512, metavar="N", help="heap of each broker (default: %(default)s)")
    down = add_verb(steps, "down", "Stop both clusters and remove their data.")
    status = add_verb(steps, "status", "Show the addresses of both clusters; exit code 1: they are not running.")
    for step in (up, down, status):
        step.add_argument("--dir", type=Path, metavar="DIR", help="folder of the lab (default: in the user's cache)")
    for step in (up, status):
        step.add_argument("--json", action="store_true", help="print one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Start, stop or show the two Kafka clusters, and return the exit code."""
    home = Path(arguments.dir).absolute() if arguments.dir else cluster_pair.default_folder()
    match arguments.lab_verb:
        case "up":
            options = LabOptions(version=arguments.kafka, heap_mb=arguments.heap_mb, quick_start=False)
            _show(cluster_pair.up(home, options), as_json=arguments.json)
            return 0
        case "down":
            print("the lab is not up" if cluster_pair.down(home) is None else "the lab is down")
            return 0
        case _:
            state = cluster_pair.status(home)
            _show(state, as_json=arguments.json)
            return 0 if state is not None and all(map(cluster_pair.is_running, state.clusters.values())) else 1


def _show(state: cluster_pair.LabState | None, *, as_json: bool) -> None:
    clusters = {} if state is None else state.clusters
    running = {name: cluster_pair.is_running(cluster) for name, cluster in clusters.items()}
    if as_json:
        shown = {
            name: {
                "bootstrap": cluster.bootstrap,
                "pid": cluster.pid,
                "running": running[name],
                "folder": cluster.folder,
            }
            for name, cluster in clusters.items()
        }
        print(json.dumps({"version": state and state.version, "clusters": shown}, indent=2))
        return
    if state is None:
        print("the lab is not up")
        return
    print(f"Apache Kafka {state.version}")
    for name, cluster in clusters.items():
        print(f"  {name:<8}{cluster.bootstrap:<20}pid {cluster.pid}{'' if running[name] else ', not running'}")
