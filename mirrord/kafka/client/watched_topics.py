"""Keeps the metadata of topics up to date while there are questions about these topics, and for some time after the
last question."""

import time
from collections.abc import Callable

from mirrord.kafka.client.cluster_metadata import ClusterView, PartitionId
from mirrord.model.names import TopicId

FORGET_S = 600.0
"""If there is no question about a topic for this many seconds, the topic is no longer watched. The topic may have been
deleted."""
SWEEP_S = 60.0


class WatchedTopics:
    """The topics that one `ClusterView` watches because there were questions about their partitions."""

    def __init__(self, view: ClusterView, now: Callable[[], float] = time.monotonic) -> None:
        self._view = view
        self._now = now
        self._asked: dict[TopicId, float] = {}
        self._swept = now()

    def see(self, partition: PartitionId) -> None:
        """Watch the topic of this partition. The caller does so for each question about a partition."""
        now = self._now()
        if partition.topic_id not in self._asked:
            self._view.watch(partition.topic, partition.topic_id)
        self._asked[partition.topic_id] = now
        if now - self._swept >= SWEEP_S:
            self._swept = now
            for topic_id in [each for each, at in self._asked.items() if now - at > FORGET_S]:
                del self._asked[topic_id]
                self._view.unwatch(topic_id)
