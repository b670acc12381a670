"""Sends infrequent requests to one cluster. The connection stays open between requests."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import TypeVar

from mirrord.config.schema import ClusterConfig
from mirrord.kafka.client.connection import Connection, ConnectionOptions, Unreachable, connect
from mirrord.kafka.client.metadata_decoding import decode_in_steps, encoded_answer
from mirrord.kafka.client.receive_buffers import BufferPool
from mirrord.kafka.protocol import metadata
from mirrord.kafka.protocol.api_versions import METADATA, Api
from mirrord.kafka.protocol.errors import ErrorCode, UnsupportedBroker, WireError
from mirrord.kafka.protocol.metadata import TopicMetadata
from mirrord.kafka.protocol.primitives import Reader
from mirrord.model.errors import EnvironmentFault

T = TypeVar("T")
OTHERS = 2
"""Number of further brokers that are asked for a topic that one broker does not know."""
BrokerAddress = tuple[str, int]
"""Host and port of a broker."""


class NotOffered(Unreachable):
    """Raised when the broker is reachable but does not support the request."""


class Asker:
    """A client that sends each request to the first reachable broker of a cluster, or to a given broker."""

    def __init__(self, config: ClusterConfig, timeout_s: float) -> None:
        self.brokers: tuple[BrokerAddress, ...] = ()
        """The broker addresses that the cluster last reported. They are tried after the configured addresses, in case
        no broker can be reached at any of these."""
        self._config = config
        self._timeout_s = timeout_s
        self._options = ConnectionOptions(connect_timeout_s=timeout_s, request_timeout_s=timeout_s)
        self._pool = BufferPool(limit_bytes=0)
        self._connection: Connection | None = None
        self._asking = asyncio.Lock()
        self._others: dict[BrokerAddress, Asker] = {}
        """The clients of the brokers that `known_elsewhere` asks."""

    async def ask(
        self,
        api: Api,
        encode: Callable[[int], bytes],
        decode: Callable[[int, Reader], T],
        at: BrokerAddress | None = None,
    ) -> T:
        """Send a request that is safe to repeat, and return the decoded answer. If `at` is given, only the broker at
        that address is asked.

        Requests are sent one at a time. `encode` and `decode` receive the API version. Raises Unreachable,
        AuthenticationFailed, TlsFailed, NotOffered or another EnvironmentFault if there is no answer.
        """
        async with self._asking:
            return await self._ask(api, encode, decode, at)

    async def known_elsewhere(self, names: Collection[str], cluster_id: str | None) -> dict[str, TopicMetadata]:
        """Ask up to `OTHERS` brokers, other than the one that answered last, for topics that this one does not know.
        Return the topics that any of them knows, even if it returns an error such as LEADER_NOT_AVAILABLE.

        A broker that is cut off from the controllers still answers, but does not know topics that have been created
        since. Brokers that do not answer are ignored, and so are brokers of another cluster than `cluster_id`.
        """
        answered = self._connection
        brokers = [each for each in self.brokers if answered is None or each != (answered.host, answered.port)]
        # If none of these addresses is the one of the broker that answered, it is among them under another address.
        others = brokers[: OTHERS + (len(brokers) == len(self.brokers))]
        for address in self._others.keys() - set(others):
            self._others.pop(address).close()
        answers = await asyncio.gather(*(self._ask_another(each, names, cluster_id) for each in others))
        # An answer without an error is better than, for example, one that names no leader.
        known = sorted((each for answer in answers for each in answer), key=lambda each: not each.error)
        return {each.name: each for each in known if each.name}

    async def _ask_another(
        self, address: BrokerAddress, names: Collection[str], cluster_id: str | None
    ) -> Sequence[TopicMetadata]:
        """Ask a broker for topics, and return what it knows. If it does not answer, return nothing. The connection for
        other requests stays with its broker: if it went to one that is cut off, the next list of topics would be
        incomplete."""
        other = self._others.get(address)
        if other is None:
            other = self._others[address] = Asker(self._config, self._timeout_s)
        with suppress(EnvironmentFault, TimeoutError):
            async with asyncio.timeout(self._timeout_s):
                answer = await other.ask_metadata(names, address)
            if answer.cluster_id == cluster_id:
                return [each for each in answer.topics if each.error != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        return ()

    async def _ask(
        self,
        api: Api,
        encode: Callable[[int], bytes],
        decode: Callable[[int, Reader], T],
        at: BrokerAddress | None,
    ) -> T:
        present = self._connection
        # A lost connection is never used, not even for the versions of the broker's APIs. The broker may have been
        # upgraded since.
        if present is not None and (present.pipe.lost or at not in (None, (present.host, present.port))):
            self._disconnect()
            present = None
        for connection in (present, None):
            try:
                self._connection = connection or await self._connect(at)
                version = self._connection.version(api)
                return decode(version, await self._connection.call(api, encode(version), version))
            except UnsupportedBroker as error:
                raise NotOffered(f"{error}") from error
            except EnvironmentFault:
                # An idle connection may have been closed in the meantime, so the request is retried on a new
                # connection.
                self._disconnect()
                if connection is None:
                    raise
            except WireError as error:
                self._disconnect()
                raise Unreachable(f"{error}") from error
        raise AssertionError

    async def ask_metadata(self, names: Collection[str] | None, at: BrokerAddress | None = None) -> metadata.Metadata:
        """Request the metadata of these topics, or of all topics if `names` is None. The answer is decoded in steps,
        because a broker may report more topics than it was asked for. Raises the same errors as `ask`."""
        version, answer = await self.encoded_metadata(names, at)
        return await self.decoded(version, answer, names)

    async def encoded_metadata(
        self, names: Collection[str] | None, at: BrokerAddress | None = None, *, allowed: bool = False
    ) -> tuple[int, bytes]:
        """Request metadata as `ask_metadata` does. Return the version and the encoded answer. If `allowed` is set, the
        answer contains the operations that are permitted on the topics."""
        return await self.ask(
            METADATA,
            lambda version: metadata.encode(version, names, allowed=allowed),
            lambda version, reader: (version, encoded_answer(reader)),
            at,
        )

    async def decoded(self, version: int, answer: bytes, names: Collection[str] | None) -> metadata.Metadata:
        """Decode the answer to the `encoded_metadata` of these topics in steps. If that fails, close the connection and
        raise Unreachable."""
        try:
            return await decode_in_steps(version, answer, None if names is None else frozenset(names))
        except WireError as error:
            self._disconnect()
            raise Unreachable(f"{error}") from error

    def close(self) -> None:
        """Close all connections. The next request opens a new connection."""
        for other in self._others.values():
            other.close()
        self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _connect(self, at: BrokerAddress | None) -> Connection:
        fault: EnvironmentFault | None = None
        addresses = (at,) if at else dict.fromkeys((*map(parse_address, self._config.bootstrap), *self.brokers))
        for host, port in addresses:
            try:
                return await connect(host, port, self._config.security, self._pool, self._options)
            except Unreachable as error:
                fault = fault or error
        assert fault is not None  # noqa: S101 - a configuration names at least one address
        raise fault


def parse_address(text: str) -> BrokerAddress:
    """Return the host and the port of an address from the configuration."""
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)
