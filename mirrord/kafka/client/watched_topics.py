"""Watches the topics that a client asks brokers about, so that the metadata of these topics stays up to date. A topic
is no longer watched once the client has not asked about it for some time."""

import time
from collections.abc import Callable

from mirrord.kafka.client.cluster_metadata import ClusterView, PartitionId
from mirrord.model.names import TopicId

FORGET_S = 600.0
"""If the client has not asked about a topic for this many seconds, the topic is no longer watched. Deleted topics are
forgotten in this way."""
SWEEP_S = 60.0


class WatchedTopics:
    """Makes a `ClusterView` watch the topics that a client asks about. A view keeps the leaders of the
    partitions of watched topics up to date."""

    def __init__(self, view: ClusterView, now: Callable[[], float] = time.monotonic) -> None:
        self._view = view
        self._now = now
        self._asked: dict[TopicId, float] = {}
        self._swept = now()

    def see(self, partition: PartitionId) -> None:
        """Watch the topic of this partition. The client calls this method each time it asks about a partition."""
        now = self._now()
        if partition.topic_id not in self._asked:
            self._view.watch(partition.topic, partition.topic_id)
        self._asked[partition.topic_id] = now
        if now - self._swept >= SWEEP_S:
            self._swept = now
            for topic_id in [each for each, at in self._asked.items() if now - at > FORGET_S]:
                del self._asked[topic_id]
                self._view.unwatch(topic_id)
