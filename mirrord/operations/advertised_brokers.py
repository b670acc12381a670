"""Examines a cluster over the network: determines whether each broker can be reached at its advertised address, and
which Kafka release its API versions correspond to."""

import asyncio
from functools import partial

import msgspec

from mirrord.config.schema import ClusterConfig
from mirrord.kafka.client.admin_requests import parse_address
from mirrord.kafka.client.connection import Connection, ConnectionOptions, connect
from mirrord.kafka.client.receive_buffers import BufferPool
from mirrord.kafka.client.reconnecting_link import ask
from mirrord.kafka.protocol import describe_cluster, metadata
from mirrord.kafka.protocol.api_versions import DESCRIBE_CLUSTER, METADATA
from mirrord.kafka.protocol.errors import WireError
from mirrord.kafka.rules.broker_version import like_release
from mirrord.model.errors import EnvironmentFault, MirrordError
from mirrord.model.names import Alias, ClusterId


class BrokerSeen(msgspec.Struct, frozen=True):
    """A broker, at the address that the cluster advertises for it."""

    node: int
    address: str
    release: str = ""
    """The newest Kafka release whose versions of Produce and Fetch requests the broker supports. The broker itself may
    have a different version."""
    error: str = ""
    """Why the broker cannot be reached. Empty if it can be reached."""


class ClusterSeen(msgspec.Struct, frozen=True):
    """The state of a cluster, as observed over the network. If none of the configured addresses answers, `error` is set
    and the other fields are empty."""

    alias: Alias
    cluster_id: ClusterId | None = None
    brokers: tuple[BrokerSeen, ...] = ()
    allowed: int | None = None
    """The operations that mirrord is allowed to perform on the cluster, as a bit field like
    `mirrord.kafka.protocol.describe_cluster.ClusterRights.allowed`. None if the cluster does not report them."""
    error: str = ""


def any_node(cluster: ClusterSeen) -> int | None:
    """Return the node id of any broker that can be reached, or None if there is none."""
    return next((broker.node for broker in cluster.brokers if not broker.error), None)


async def check_brokers(alias: Alias, config: ClusterConfig, timeout_s: float) -> ClusterSeen:
    """Connect to every broker once, and return what was observed. If a cluster or a broker does not answer, the result
    contains the error, and no exception is raised."""
    options = ConnectionOptions(connect_timeout_s=timeout_s, request_timeout_s=timeout_s)
    pool = BufferPool(limit_bytes=0)
    try:
        first = await _first(config, pool, options)
    except EnvironmentFault as fault:
        return ClusterSeen(alias, error=str(fault))
    try:
        version = first.version(METADATA)
        body = metadata.encode(version, [])
        response = await ask(first, METADATA, body, version, partial(metadata.decode, version, requested=()))
        allowed = await _allowed(first)
    except MirrordError as fault:
        return ClusterSeen(alias, error=str(fault))
    finally:
        first.close()
    seen = await asyncio.gather(*(_see(broker, config, pool, options) for broker in response.brokers))
    return ClusterSeen(alias, ClusterId(response.cluster_id or ""), tuple(seen), allowed)


async def _first(config: ClusterConfig, pool: BufferPool, options: ConnectionOptions) -> Connection:
    """Try the configured addresses in order, and return the first successful connection.

    Raises EnvironmentFault with the errors for all addresses.
    """
    errors: list[str] = []
    for text in config.bootstrap:
        try:
            return await connect(*parse_address(text), config.security, pool, options)
        except EnvironmentFault as fault:
            errors.append(str(fault))
    raise EnvironmentFault("; ".join(dict.fromkeys(errors)))


async def _allowed(connection: Connection) -> int | None:
    try:
        version = connection.version(DESCRIBE_CLUSTER)
        body = describe_cluster.encode_describe_cluster()
        response = await ask(connection, DESCRIBE_CLUSTER, body, version, describe_cluster.decode_describe_cluster)
    except WireError:
        return None  # an old broker, or one that is not Apache Kafka
    return None if response.error or response.allowed == metadata.NOT_REPORTED else response.allowed


async def _see(
    broker: metadata.Broker, config: ClusterConfig, pool: BufferPool, options: ConnectionOptions
) -> BrokerSeen:
    where = f"{broker.host}:{broker.port}"
    try:
        connection = await connect(broker.host, broker.port, config.security, pool, options)
    except EnvironmentFault as fault:
        return BrokerSeen(broker.node, where, error=str(fault))
    release = like_release(connection.versions)
    connection.close()
    return BrokerSeen(broker.node, where, release)
