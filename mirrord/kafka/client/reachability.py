"""Tracks whether clusters are reachable. Several parts of a daemon send requests to the same cluster, and each part
reports its results."""

import asyncio
from collections.abc import Awaitable, Collection, Mapping
from typing import TypeVar

import structlog

from mirrord.kafka.client.topic_admin import ClusterTopics, TopicAdmin
from mirrord.kafka.rules.topic import TopicShape
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import Alias, ClusterId
from mirrord.model.status import ClusterStatus
from mirrord.runtime.clock import Clock

T = TypeVar("T")

log = structlog.get_logger()


class ClusterWatch:
    """The reachability of one cluster, according to several observers. An observer is a part of this daemon that sends
    requests to the cluster. Each change in reachability is logged once."""

    def __init__(self, alias: Alias, clock: Clock) -> None:
        self.cluster_id: ClusterId | None = None
        self._alias = alias
        self._clock = clock
        self._errors: dict[str, str] = {}
        self._asked = False
        self._since_ms: int | None = None

    def record(self, observer: str, error: str) -> None:
        """Record the result of a request that an observer has sent to the cluster. If `error` is empty, the cluster has
        answered."""
        was_reachable, was_asked = not self._errors, self._asked
        self._asked = True
        if error:
            self._errors[observer] = error
        else:
            self._errors.pop(observer, None)
        self._note(was_reachable=was_reachable, was_asked=was_asked)

    def forget(self, observer: str) -> None:
        """Remove an observer that no longer sends requests to the cluster, together with its latest error."""
        was_reachable = not self._errors
        self._errors.pop(observer, None)
        self._note(was_reachable=was_reachable, was_asked=self._asked)

    def status(self) -> ClusterStatus:
        """Return whether the cluster is reachable, and since when. If it is unreachable, also return the error."""
        error = next(iter(self._errors.values()), None)
        reachable = self._asked and error is None
        return ClusterStatus(self._alias, self.cluster_id, reachable, self._since_ms, error)

    def _note(self, *, was_reachable: bool, was_asked: bool) -> None:
        reachable = not self._errors
        if was_asked and reachable == was_reachable:
            return
        self._since_ms = self._clock.wall_ms()
        if not reachable:
            log.warning("cluster_unreachable", cluster=self._alias, error=next(iter(self._errors.values())))
        elif was_asked:
            log.info("cluster_reachable", cluster=self._alias)


class WatchedAdmin:
    """A `TopicAdmin` that reports to a `ClusterWatch` whether its cluster answers."""

    def __init__(self, admin: TopicAdmin, watch: ClusterWatch, observer: str) -> None:
        self._admin = admin
        self._watch = watch
        self._observer = observer

    async def describe(self, names: Collection[str] | None = None, *, rights: bool = False) -> ClusterTopics:
        """Return the topics with these names, or all topics if `names` is None. If `rights` is set, also return the
        operations that mirrord may perform on them."""
        seen = await self._watched(self._admin.describe(names, rights=rights))
        self._watch.cluster_id = seen.cluster_id
        return seen

    async def create(self, topics: Mapping[str, TopicShape], *, validate_only: bool = False) -> dict[str, str]:
        """Create topics. Return each refused topic with the reason."""
        return await self._watched(self._admin.create(topics, validate_only=validate_only))

    async def grow(self, topics: Mapping[str, int]) -> dict[str, str]:
        """Add partitions to topics until each topic has the given number of partitions. Return each refused topic with
        the reason."""
        return await self._watched(self._admin.grow(topics))

    async def close(self) -> None:
        """Close the connection."""
        await self._admin.close()

    async def _watched(self, request: Awaitable[T]) -> T:
        try:
            answer = await request
        except EnvironmentFault as fault:
            self._watch.record(self._observer, str(fault))
            raise
        self._watch.record(self._observer, "")
        return answer


async def both_ids(source: WatchedAdmin, target: WatchedAdmin) -> tuple[ClusterId, ClusterId]:
    """Return the cluster ids of the source and the target. Both clusters are always asked, so that the status of each
    cluster is current. Raises EnvironmentFault if one of them does not answer."""
    answers = await asyncio.gather(source.describe([]), target.describe([]), return_exceptions=True)
    one, other = answers
    if isinstance(one, BaseException):
        raise one
    if isinstance(other, BaseException):
        raise other
    return one.cluster_id, other.cluster_id
