"""Determines whether source topics and target topics are compacted, for the lanes of one replicator."""

import asyncio

from mirrord.config.schema import ClusterConfig
from mirrord.kafka.client.effective_configs import topic_settings
from mirrord.kafka.client.range_reader import ReadFailed
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.model.errors import EnvironmentFault
from mirrord.replication.host.hosted_lane import Begin, HostedLane
from mirrord.replication.lane.source.cleanup_policy import AskCleanup, CleanupAnswer
from mirrord.topics.rules.retention import is_compacted

_POLICY = "cleanup.policy"
KNOWN_S = 10.0
"""How long, in seconds, the cleanup policy of a topic is cached. The cache saves requests, because the lanes of
one topic are often taken over together."""
UNKNOWN_S = 1.0
"""How long, in seconds, the result is cached if the policy cannot be read. The time is short, so that a lane that is
halted for this reason resumes soon after the permission has been granted."""
KNOWN_TOPICS = 10_000
"""Maximum number of topics whose cleanup policies are cached. Without this limit, deleted topics would stay in the
cache."""


class Cleanup:
    """Answers lanes that ask whether their source topic is compacted."""

    def __init__(self, cluster: ClusterConfig, timeout_s: float, begin: Begin) -> None:
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._begin = begin

    def ask(self, hosted: HostedLane, effect: AskCleanup) -> None:
        """Ask the source cluster for the cleanup policy of the lane's source topic, and pass the answer to the lane."""
        self._begin(hosted, self._ask(hosted, effect.question))

    async def _ask(self, hosted: HostedLane, question: int) -> None:
        topic = hosted.source.topic
        try:
            settings = await topic_settings(self._cluster, [topic], [_POLICY], self._timeout_s)
        except EnvironmentFault as fault:
            hosted.tell(CleanupAnswer(question, None, str(fault)))
            return
        policy = settings[topic].values.get(_POLICY) if topic in settings else None
        hosted.tell(CleanupAnswer(question, None if policy is None else is_compacted(policy)))


class CleanupPolicies:
    """Determines whether topics of one cluster are compacted, and caches the answers."""

    def __init__(self, cluster: ClusterConfig, timeout_s: float) -> None:
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._lock = asyncio.Lock()
        self._known: dict[str, tuple[float, bool | None]] = {}
        """By topic: until when the answer is cached, and the answer. The topics that were asked about last are at the
        end."""

    async def compacts(self, topic: str) -> bool | None:
        """Return whether the topic is compacted, or None if mirrord has no permission to read the topic's configs. If
        it had this permission before, return the last known answer.

        Raises ReadFailed if the cluster does not answer.
        """
        now = asyncio.get_running_loop().time
        async with self._lock:
            known = self._known.get(topic)
            if known is not None and now() < known[0]:
                return known[1]
            try:
                settings = await topic_settings(self._cluster, [topic], [_POLICY], self._timeout_s)
            except EnvironmentFault as fault:
                raise ReadFailed(int(ErrorCode.NETWORK_EXCEPTION)) from fault
            policy = settings[topic].values.get(_POLICY) if topic in settings else None
            found = is_compacted(policy) if policy is not None else known[1] if known is not None else None
            self._known.pop(topic, None)
            self._known[topic] = (now() + (UNKNOWN_S if policy is None else KNOWN_S), found)
            if len(self._known) > KNOWN_TOPICS:
                del self._known[next(iter(self._known))]
            return found
