"""A cluster from outside: can each of its brokers be reached where the cluster says it is, and what is it like."""

import asyncio
from functools import partial

import msgspec

from mirrord.cluster.releases import like_release
from mirrord.model.config import ClusterConfig
from mirrord.model.errors import EnvironmentFault, MirrordError
from mirrord.model.names import Alias, ClusterId
from mirrord.shell.connections import Connection, ConnectionOptions, connect
from mirrord.shell.frames import BufferPool
from mirrord.shell.links import ask
from mirrord.shell.requests import address
from mirrord.wire import cluster, metadata
from mirrord.wire.apis import DESCRIBE_CLUSTER, METADATA
from mirrord.wire.errors import WireError


class BrokerSeen(msgspec.Struct, frozen=True):
    """A broker at the address that the cluster tells of it."""

    node: int
    address: str
    release: str = ""
    """The Kafka release that it is like, by the requests that it takes."""
    error: str = ""
    """Why it cannot be reached."""


class ClusterSeen(msgspec.Struct, frozen=True):
    """A cluster; `error` is set, and the rest empty, when none of the configured addresses leads to it."""

    alias: Alias
    cluster_id: ClusterId | None = None
    brokers: tuple[BrokerSeen, ...] = ()
    allowed: int | None = None
    """What we may do with the cluster (`wire.cluster.ClusterRights.allowed`); None when that is not told."""
    error: str = ""


def any_node(cluster: ClusterSeen) -> int | None:
    """A broker that can be reached; None when there is none."""
    return next((broker.node for broker in cluster.brokers if not broker.error), None)


async def look_at(alias: Alias, config: ClusterConfig, timeout_s: float) -> ClusterSeen:
    """Connects to every broker, once. Never raises EnvironmentFault."""
    options = ConnectionOptions(connect_timeout_s=timeout_s, request_timeout_s=timeout_s)
    pool = BufferPool(limit_bytes=0)
    try:
        first = await _first(config, pool, options)
    except EnvironmentFault as fault:
        return ClusterSeen(alias, error=str(fault))
    try:
        version = first.version(METADATA)
        body = metadata.encode(version, [])
        told = await ask(first, METADATA, body, version, partial(metadata.decode, version))
        allowed = await _allowed(first)
    except MirrordError as fault:
        return ClusterSeen(alias, error=str(fault))
    finally:
        first.close()
    seen = await asyncio.gather(*(_see(broker, config, pool, options) for broker in told.brokers))
    return ClusterSeen(alias, ClusterId(told.cluster_id or ""), tuple(seen), allowed)


async def _first(config: ClusterConfig, pool: BufferPool, options: ConnectionOptions) -> Connection:
    """To the first configured address that answers. Raises EnvironmentFault with what each of them said."""
    errors: list[str] = []
    for text in config.bootstrap:
        try:
            return await connect(*address(text), config.security, pool, options)
        except EnvironmentFault as fault:
            errors.append(str(fault))
    raise EnvironmentFault("; ".join(dict.fromkeys(errors)))


async def _allowed(connection: Connection) -> int | None:
    try:
        version = connection.version(DESCRIBE_CLUSTER)
        body = cluster.encode_describe_cluster()
        told = await ask(connection, DESCRIBE_CLUSTER, body, version, cluster.decode_describe_cluster)
    except WireError:
        return None  # an old broker, or one that is not Apache Kafka
    return None if told.error or told.allowed == metadata.NOT_TOLD else told.allowed


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
