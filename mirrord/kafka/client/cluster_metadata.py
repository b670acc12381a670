"""Keeps a view of one cluster: its brokers, the leaders of its partitions, and whether this process can reach it."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import structlog

from mirrord.config.schema import ClusterConfig
from mirrord.kafka.client.admin_requests import BrokerAddress
from mirrord.kafka.client.connection import Connection, ConnectionOptions, connect
from mirrord.kafka.client.metadata_decoding import ask_metadata
from mirrord.kafka.client.receive_buffers import BufferPool
from mirrord.kafka.client.reconnecting_link import Backoff, Link
from mirrord.kafka.client.request_stats import RequestStats
from mirrord.kafka.protocol.api_versions import APIS, METADATA
from mirrord.kafka.protocol.errors import ErrorCode, UnsupportedBroker
from mirrord.kafka.protocol.metadata import AT_ONCE, Metadata, TopicMetadata
from mirrord.kafka.protocol.primitives import ZERO_UUID
from mirrord.model.errors import EnvironmentFault, MirrordError, internal_error
from mirrord.model.names import Alias, ClusterId, TopicId
from mirrord.runtime.outage_log import OutageLog
from mirrord.runtime.tasks import keep_running

REFRESH_S = 60.0
"""Longest time between two refreshes of a view, in seconds. Most changes in the cluster are noticed sooner, because
they make requests fail, and a failed request triggers a refresh."""
WAIT_SHARE = 0.6
"""The longest time that a broker may wait for data before it answers a Fetch request, as a share of the request
timeout."""
INFORMANTS = 3
"""If metadata have to be refreshed early, they are requested from this number of brokers in turn."""
_EVENTS = "cluster_unreachable", "cluster_reachable"
STEADY_S = 5.0
"""A cluster counts as reachable again after this number of seconds without a failure."""
LEAST_PAUSE_S = 0.1
"""Shortest pause between two refreshes, in seconds. It applies no matter how many callers request a refresh."""

PATIENCE_S, ANSWER_S = 3.0, 5.0
"""Time limits for a connection and for an answer if a person waits for the result."""

log = structlog.get_logger()


class PartitionId(NamedTuple):
    """A partition, identified by the topic's name, the topic's id and the partition number.

    Some requests identify a topic by its name, and others by its id. The id distinguishes the topic from a topic that
    is created later under the same name.
    """

    topic: str
    topic_id: TopicId
    partition: int


class Leader(NamedTuple):
    """The node id of a partition's leader, and the leader epoch. The node id is -1 while there is no leader."""

    node: int
    epoch: int


@dataclass(slots=True)
class WatchedTopic:
    """A topic that a `ClusterView` watches, with the current leaders of its partitions."""

    topic: str
    topic_id: TopicId
    watchers: int = 0
    leaders: dict[int, Leader] = field(default_factory=dict[int, Leader])
    absent: int = 0
    """How many answers in a row did not contain the topic with this id."""

    @property
    def gone(self) -> bool:
        """Whether the topic with this id has been deleted. A new topic may exist under the same name. A single answer
        does not prove this, because a broker that is cut off from the controllers does not know newer topics."""
        return self.absent >= INFORMANTS


class ClusterView:
    """The current metadata of one cluster, and the connections to its brokers.

    While the cluster cannot be reached, the view keeps trying to connect. It logs when the cluster becomes unreachable,
    and when the cluster becomes reachable again.
    """

    def __init__(
        self, alias: Alias, config: ClusterConfig, pool: BufferPool, options: ConnectionOptions, cluster_id: ClusterId
    ) -> None:
        self.alias = alias
        self.error = ""
        """Why the last attempt to reach the cluster failed. Empty while the cluster is reachable."""
        self.on_change: list[Callable[[], None]] = []
        """Callbacks that run after each successful refresh of the metadata."""
        self.fetches, self.produces = RequestStats("fetch"), RequestStats("produce")
        """Statistics of the Fetch and Produce requests."""
        self._config = config
        self._pool = pool
        self._options = options
        self._cluster_id = cluster_id
        self._loop = asyncio.get_running_loop()
        self._brokers: dict[int, BrokerAddress] = {}
        self._topics: dict[TopicId, WatchedTopic] = {}
        self._links: dict[tuple[int, str], Link] = {}
        self._bootstrap: list[Link] = []
        self._turn = 0
        """How many early refreshes there have been. Each of them asks a different broker."""
        self._outdated = 0
        """How many answers in a row were outdated, or may have been."""
        self._is_slow = False
        """Whether the last broker that was asked has not answered in time."""
        self._wanted = asyncio.Event()
        self._outages = OutageLog(_EVENTS, STEADY_S, self._loop.time, self._wanted.set, cluster=alias)
        self._connecting: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def start(self) -> None:
        """Start the task that refreshes the metadata."""
        for address in self._config.bootstrap:
            host, _, port = address.rpartition(":")
            self._bootstrap.append(Link(partial(self._open, host.strip("[]"), int(port))))
        self._wanted.set()
        self._task = self._loop.create_task(keep_running(self._run, "cluster_not_followed", cluster=self.alias))

    async def close(self) -> None:
        """Stop the task that refreshes the metadata, and close all connections that this view has opened."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        for task in self._connecting:
            task.cancel()
        self._outages.close()
        self._closed = True
        for link in (*self._links.values(), *self._bootstrap):
            link.close()
        # The links refer to this view. Without these references, the view and its connections need no garbage collector
        # to be freed.
        self._links.clear()
        self._bootstrap.clear()

    def watch(self, topic: str, topic_id: TopicId) -> None:
        """Add a watcher for a topic. While a topic has watchers, this object keeps its record of the leaders of the
        topic's partitions up to date."""
        known = self._topics.setdefault(topic_id, WatchedTopic(topic, topic_id))
        known.watchers += 1
        if not known.leaders:
            self.refresh()

    def unwatch(self, topic_id: TopicId) -> None:
        """Remove one watcher of a topic. When the last watcher is removed, the view forgets the topic."""
        known = self._topics.get(topic_id)
        if known is not None:
            known.watchers -= 1
            if known.watchers <= 0:
                del self._topics[topic_id]

    def leader(self, partition: PartitionId) -> Leader | None:
        """Return the partition's leader. Return None if the leader is unknown, if the partition has no leader, or if
        the topic no longer exists."""
        known = self._topics.get(partition.topic_id)
        leader = None if known is None or known.gone else known.leaders.get(partition.partition)
        return None if leader is None or leader.node < 0 else leader

    def gone(self, topic_id: TopicId) -> bool:
        """Return whether the watched topic with this id no longer exists."""
        known = self._topics.get(topic_id)
        return known is not None and known.gone

    def refresh(self) -> None:
        """Request a refresh of the metadata. Requests that are made within a short time share one refresh."""
        self._wanted.set()

    @property
    def longest_wait_ms(self) -> int:
        """The longest time that a broker may wait for data before it answers a Fetch request, in milliseconds. It is
        shorter than the request timeout, so that the request does not time out while the broker is waiting."""
        return int(self._options.request_timeout_s * 1000 * WAIT_SHARE)

    @property
    def nodes(self) -> list[int]:
        """The ids of the known brokers."""
        return list(self._brokers)

    def link(self, node: int, purpose: str) -> Link:
        """Return the `Link` to a broker for one purpose, such as "groups". Each purpose has a separate connection."""
        link = self._links.get((node, purpose))
        if link is None:
            link = Link(lambda: self._connect(node))
            if self._closed:
                link.close()
            else:
                self._links[node, purpose] = link
        return link

    async def any_broker(self) -> Connection:
        """Return a connection to any broker that can be reached. Callers use the connection for requests that every
        broker can answer.

        If no broker can be reached, raises EnvironmentFault with the error of the last attempt.
        """
        fault = EnvironmentFault(f"no broker of {self.alias} is known")
        for link in self._candidates():
            try:
                return await link.get()
            except EnvironmentFault as error:
                fault = error
        try:
            raise fault
        finally:
            del fault  # the error refers to this frame, and with it to whatever the callers ask about

    async def _informant(self) -> Connection:
        """Return a connection to the broker to ask for metadata. Raises EnvironmentFault.

        A broker that is cut off from the controllers still answers, but with outdated metadata. Usually, nothing in the
        answer shows this: only the requests to a former leader fail, and each failure causes an early refresh.
        Therefore, each early refresh asks a different broker. Only brokers to which a connection is open are asked,
        because a leader must be found quickly when a broker does not answer.
        """
        live: dict[BrokerAddress, Link] = {}
        for link in self._candidates():
            if link.live is not None:
                live.setdefault((link.live.host, link.live.port), link)
        if not live:
            return await self.any_broker()
        if self._turn > 1 and len(live) < INFORMANTS:
            self._connect_another(live)
        return await list(live.values())[self._turn % len(live)].get()

    def _connect_another(self, live: Collection[BrokerAddress]) -> None:
        """Begin to connect to a broker that is not connected yet, so that a later refresh can ask it."""
        unknown = [node for node, address in self._brokers.items() if address not in live]
        if unknown and not self._connecting:
            task = self._loop.create_task(self._try_connecting(self.link(unknown[self._turn % len(unknown)], "ask")))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    async def _try_connecting(self, link: Link) -> None:
        with suppress(EnvironmentFault):
            await link.get()

    def _candidates(self) -> Iterator[Link]:
        links = [*(self.link(node, "ask") for node in self._brokers), *self._bootstrap]
        yield from sorted(links, key=lambda link: link.live is None)

    async def _open(self, host: str, port: int) -> Connection:
        connection = await connect(host, port, self._config.security, self._pool, self._options)
        try:
            for api in APIS:
                connection.version(api)
        except UnsupportedBroker as error:
            connection.close()
            raise EnvironmentFault(f"{host}:{port}: {error}") from None
        return connection

    async def _connect(self, node: int) -> Connection:
        address = self._brokers.get(node)
        if address is None:
            self.refresh()
            raise EnvironmentFault(f"{self.alias} does not know broker {node}")
        try:
            return await self._open(*address)
        except EnvironmentFault:
            self.refresh()  # the broker's address or the leaders of its partitions may have changed
            raise

    async def _run(self) -> None:
        backoff = Backoff()
        while True:
            try:
                async with asyncio.timeout(REFRESH_S):
                    await self._wanted.wait()
                self._turn += 1
            except TimeoutError:
                pass
            self._wanted.clear()
            if await self._refresh():
                backoff.reset()
                await asyncio.sleep(LEAST_PAUSE_S)
            else:
                self._wanted.set()
                await asyncio.sleep(backoff.next_s())

    async def _refresh(self) -> bool:
        names = sorted({topic.topic for topic in self._topics.values()})
        try:
            connection = await self._informant()
            version = connection.version(METADATA)
            # A broker that is suspended must not hold up the search for a leader, so another one is asked soon. That
            # one has more time: the answer of a large cluster may take long.
            limit = None if self._is_slow else self._options.request_timeout_s / INFORMANTS
            self._is_slow = True
            async with asyncio.timeout(limit):
                answer = await ask_metadata(connection, names, version)
            self._is_slow = False
            await self._take(answer)
        except TimeoutError:
            return False
        except MirrordError as error:
            self.error = str(error)
            self._outages.failed(self.error)
            return False
        except Exception as error:  # noqa: BLE001 -- it is logged
            # This task must not end: without it, no later change of a leader would be noticed.
            self.error = internal_error(error)
            self._outages.failed(self.error, error)
            return False
        self.error = ""
        self._outages.succeeded()
        for callback in tuple(self.on_change):
            try:
                callback()
            except Exception:
                log.exception("cluster_news_failed", cluster=self.alias)  # the other callbacks must still be called
        return True

    async def _take(self, metadata: Metadata) -> None:
        if metadata.cluster_id not in (None, self._cluster_id):
            raise EnvironmentFault(
                f"the brokers of {self.alias} belong to cluster {metadata.cluster_id}, not {self._cluster_id}"
            )
        self._brokers = {broker.node: (broker.host, broker.port) for broker in metadata.brokers}
        found = {topic.name: topic for topic in metadata.topics}
        is_outdated = False
        for known in tuple(self._topics.values()):
            topic = found.get(known.topic)
            if topic is not None:
                is_outdated |= await _take_topic(known, topic)
        self._outdated = self._outdated + 1 if is_outdated else 0
        if 0 < self._outdated < INFORMANTS:
            self.refresh()  # another broker will be asked


async def _take_topic(known: WatchedTopic, topic: TopicMetadata) -> bool:
    """Note the leaders of a topic. Other tasks run in between if it has very many partitions. Return whether the
    broker's metadata are outdated, or may be."""
    if topic.error == 0 and topic.id == ZERO_UUID:
        # The broker does not know topic ids, because its cluster is being upgraded. It is therefore unknown whether
        # this topic is the watched topic. Discovery reports such a cluster to operators.
        return False
    if topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or (topic.error == 0 and topic.id != known.topic_id):
        known.absent += 1
        return not known.gone
    if topic.error:
        return False
    known.absent, is_outdated = 0, False
    for number, partition in enumerate(topic.partitions):
        if number % AT_ONCE == AT_ONCE - 1:
            await asyncio.sleep(0)
        leader = known.leaders.get(partition.partition)
        # A broker with outdated metadata may report a former leader, so the leader with the higher epoch is kept.
        if leader is not None and partition.leader_epoch < leader.epoch:
            is_outdated = True
            continue
        known.leaders[partition.partition] = Leader(partition.leader, partition.leader_epoch)
    return is_outdated


@asynccontextmanager
async def view_of(alias: Alias, cluster: ClusterConfig, cluster_id: ClusterId | None) -> AsyncGenerator[ClusterView]:
    """Provide the metadata of a cluster and the connections to its brokers for a command. The connections are closed
    when the context exits."""
    options = ConnectionOptions(connect_timeout_s=PATIENCE_S, request_timeout_s=ANSWER_S)
    view = ClusterView(alias, cluster, BufferPool(0), options, cluster_id or ClusterId(""))
    view.start()
    try:
        yield view
    finally:
        await view.close()
