"""Many consumer groups that commit positions in a topic all the time."""

import asyncio
import random
import threading
import time
from collections.abc import Mapping
from typing import NamedTuple

from confluent_kafka.admin import AdminClient

from bench.harness.clusters import Admin
from mirrord.config.schema import ClusterConfig
from mirrord.config.security import Security
from mirrord.kafka.client.cluster_metadata import view_of
from mirrord.kafka.client.group_admin import GroupAdmin
from mirrord.kafka.protocol.groups import CommittedOffset
from mirrord.lab.cluster import Cluster
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import ClusterId

GROUPS = 200
_PATIENCE_S = 120.0
_COMMIT_S = 0.2
_AT_ONCE = 50
_POLL_S = 0.1

Place = tuple[str, int]
"""A group and a partition."""


class Commit(NamedTuple):
    """One commit of one group in one partition. Times are those of `time.monotonic`."""

    sent_s: float
    acknowledged_s: float
    """Infinite if it was not acknowledged."""
    offset: int


class Committer:
    """Commits positions of many groups on one cluster in a thread, and remembers all of them."""

    def __init__(self, source: Cluster, topic: str, partitions: int, prefix: str, seed: int) -> None:
        """`prefix` is what the names of the groups begin with."""
        self.commits: dict[Place, list[Commit]] = {}
        self._source, self._topic, self._partitions, self._prefix = source, topic, partitions, prefix
        self._rng = random.Random(seed)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def start(self) -> None:
        """Begin to commit."""
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait until nothing is committed any longer."""
        self._stopping.set()
        self._thread.join(_PATIENCE_S)

    async def _run(self) -> None:
        config = ClusterConfig((self._source.bootstrap,), Security())
        async with view_of("eu", config, cluster_id(self._source)) as view:
            admin = GroupAdmin(view)
            while not self._stopping.is_set():
                try:
                    await self._round(admin)
                except EnvironmentFault:
                    await asyncio.sleep(_POLL_S)  # the source was killed, or keeps no groups yet
                await asyncio.sleep(_COMMIT_S)

    async def _round(self, admin: GroupAdmin) -> None:
        ends = await asyncio.to_thread(
            Admin(self._source.bootstrap).ends, {self._topic: self._partitions}, timeout_s=1.0
        )
        groups = self._rng.sample(range(GROUPS), _AT_ONCE)
        wanted: dict[str, dict[tuple[str, int], CommittedOffset]] = {}
        for group in groups:
            name = group_name(self._prefix, group)
            for partition in range(self._partitions):
                end = ends.get((self._topic, partition), 0)
                known = self.commits.get((name, partition), ())
                offset = max(end - self._rng.randrange(100), known[-1].offset if known else 0)
                wanted.setdefault(name, {})[self._topic, partition] = CommittedOffset(offset, -1, "")
        sent_s = time.monotonic()
        errors: Mapping[str, Mapping[tuple[str, int], int]] = {}
        try:
            errors = await admin.commit(wanted)
        finally:
            now = time.monotonic()
            for name, places in wanted.items():
                for (topic, partition), each in places.items():
                    error = errors.get(name, {}).get((topic, partition), -1)
                    done = Commit(sent_s, now if error == 0 else float("inf"), each.offset)
                    self.commits.setdefault((name, partition), []).append(done)


def group_name(prefix: str, number: int) -> str:
    """Return the name of a group."""
    return f"{prefix}-{number:03}"


def cluster_id(cluster: Cluster) -> ClusterId:
    """Return the id of a cluster."""
    return ClusterId(AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=10).cluster_id or "")
