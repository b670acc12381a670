"""Topics that are asked about from time to time. A view follows them for a while, but not forever."""

import time
from collections.abc import Callable

from mirrord.kafka.client.cluster_metadata import ClusterView, PartitionId
from mirrord.model.names import TopicId

FORGET_S = 600.0
"""A topic that has not been asked about for this long is no longer watched; it may have been deleted long ago."""
SWEEP_S = 60.0


class WatchedTopics:
    """The topics that one view watches on request."""

    def __init__(self, view: ClusterView, now: Callable[[], float] = time.monotonic) -> None:
        self._view = view
        self._now = now
        self._asked: dict[TopicId, float] = {}
        self._swept = now()

    def see(self, partition: PartitionId) -> None:
        """Watch a partition's topic, because a question about it has arrived."""
        now = self._now()
        if partition.topic_id not in self._asked:
            self._view.watch(partition.topic, partition.topic_id)
        self._asked[partition.topic_id] = now
        if now - self._swept >= SWEEP_S:
            self._swept = now
            for topic_id in [each for each, at in self._asked.items() if now - at > FORGET_S]:
                del self._asked[topic_id]
                self._view.unwatch(topic_id)
