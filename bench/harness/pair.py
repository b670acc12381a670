"""Two clusters of one broker each, started at the same time."""

from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.harness.load import Topic
from mirrord.lab import cluster_pair
from mirrord.lab.cluster import Cluster
from mirrord.lab.server_properties import LabOptions

LASTING: Mapping[str, str] = {"log.retention.ms": "-1", "file.delete.delay.ms": "1000"}
"""No record is too old, and deleted topics leave the disk at once."""


@dataclass(frozen=True)
class Side:
    """One of the two clusters: its address, and the folder of its files."""

    bootstrap: str
    folder: Path

    def stored_bytes(self, topics: Mapping[str, int]) -> int:
        """Return the size of the logs of these topics (name and partitions) on disk."""
        data = self.folder / "node-1" / "data"
        return sum(
            segment.stat().st_size
            for name, partitions in topics.items()
            for partition in range(partitions)
            for segment in (data / f"{name}-{partition}").glob("*.log")
        )


@contextmanager
def pair(source: LabOptions, target: LabOptions) -> Generator[tuple[Cluster, Cluster]]:
    """Start both clusters in temporary folders; they end with this process. Raises EnvironmentFault."""
    with ExitStack() as open_clusters:
        clusters = [Cluster(options) for options in (source, target)]
        for cluster in clusters:
            open_clusters.callback(cluster.close)
        with ThreadPoolExecutor(2) as starters:
            list(starters.map(Cluster.start, clusters))
        yield clusters[0], clusters[1]


@contextmanager
def sides(options: LabOptions, *, keep_in: Path | None) -> Generator[tuple[Side, Side]]:
    """Start both clusters. With `keep_in` they outlive this process unless it fails: `mirrord lab down --dir` ends
    them."""
    if keep_in is None:
        with pair(options, options) as clusters:
            yield Side(clusters[0].bootstrap, clusters[0].folder), Side(clusters[1].bootstrap, clusters[1].folder)
        return
    try:
        state = cluster_pair.up(keep_in, options)
        found = [state.clusters[name] for name in cluster_pair.NAMES]
        yield Side(found[0].bootstrap, Path(found[0].folder)), Side(found[1].bootstrap, Path(found[1].folder))
    except (Exception, KeyboardInterrupt):
        cluster_pair.down(keep_in)
        raise


def partitions(topics: list[Topic]) -> dict[str, int]:
    """Names and partitions."""
    return {topic.name: topic.partitions for topic in topics}
