"""Decodes the metadata of large clusters without holding up the event loop."""

import asyncio
from collections.abc import Collection
from typing import cast

from mirrord.kafka.client.connection import Connection
from mirrord.kafka.protocol.api_versions import METADATA
from mirrord.kafka.protocol.errors import WireError
from mirrord.kafka.protocol.metadata import Metadata, decoding, encode
from mirrord.kafka.protocol.primitives import Reader


def encoded_answer(reader: Reader) -> bytes:
    """Return a copy of an answer that is decoded later. The copy takes a millisecond for 100,000 partitions."""
    return bytes(reader.buffer[reader.position : reader.end])


async def decode_in_steps(version: int, answer: bytes, requested: Collection[str] | None = None) -> Metadata:
    """Decode a Metadata response, and let other tasks run in between. `requested` is the argument of `decoding`. Raises
    WireError."""
    work = decoding(version, Reader(answer), requested)
    try:
        while True:
            next(work)
            await asyncio.sleep(0)
    except StopIteration as end:
        return cast(Metadata, end.value)


async def ask_metadata(connection: Connection, names: Collection[str], version: int) -> Metadata:
    """Request the metadata of these topics. Raises ConnectionLost. If the answer cannot be decoded, or contains other
    topics, closes the connection and raises WireError."""
    requested = frozenset(names)
    answer = encoded_answer(await connection.call(METADATA, encode(version, names), version))
    try:
        return await decode_in_steps(version, answer, requested)
    except WireError as error:
        connection.pipe.close(str(error), error)
        raise
