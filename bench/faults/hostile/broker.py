"""A hostile broker, as a separate process. It changes its attack every 20 to 40 seconds.

`python -m bench.faults.hostile.broker` listens at two ports and prints `ready`. Clients of the second port use SCRAM.
At first, all answers are valid. A line at its standard input ends this: from then on, the ports refuse connections.
The next line begins the attack. The third line, or the end of the input, ends it: the process prints as JSON what each
attack received, and exits. It has the lowest priority of all processes, because it plays the part of another machine.
"""

import argparse
import asyncio
import os
import random
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache

import msgspec

from bench.faults.hostile import batches, wire
from bench.faults.hostile.rotation import (
    ABSURD_VERSIONS,
    ALL,
    BATCHES,
    ELSEWHERE,
    HONEST,
    LASTING,
    MANY_PARTITIONS,
    ODD_NAMES,
    REFUSED,
    SCRAM,
    STREAMS,
    Phase,
    rotation,
)
from bench.faults.hostile.wire import Request, Topic
from mirrord.kafka.protocol.api_versions import FETCH, LIST_OFFSETS, METADATA, OFFSET_FOR_LEADER_EPOCH
from mirrord.kafka.protocol.errors import ErrorCode, WireError
from mirrord.kafka.protocol.primitives import INT32

MECHANISM = "SCRAM-SHA-256"
PASSWORD = "swordfish"  # noqa: S105 -- a password of the bench alone
PLAIN = b"plain"
"""A topic that always exists."""
ODD: Sequence[bytes] = (
    b"\x1b[2J\x1b[31mred",
    b"two\nlines\r\x00",
    b"../../../../tmp/hostile",
    b"",
    b".",
    b"x" * 40_000,
    "\u202eright-to-left".encode(),
    b"same-name",
    b"same-name",
    b"__consumer_offsets",
    b"mirrord.healthy.ledger",
    b"mirrord.healthy.state",
    b"<script>alert(1)</script>",
)
NOT_UTF8 = b"\xff\xfe\xc3("
PARTITIONS = 100_000
_NEGATIVE = (-1, -2, -(1 << 31))
_CHUNK = 1 << 16
_LEAST_WAIT_S = 0.05
_LARGEST_REQUEST = 16 << 20
_LEAST_PRIORITY = 19
_UNKNOWN = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class Received(msgspec.Struct, kw_only=True):
    """What one attack received."""

    attack: str
    seconds: float
    connections: int = 0
    requests: int = 0
    hits: int = 0
    """Number of answers that were wrong on purpose. For attacks with batches, these are the answers that contained a
    batch of the attack, also if they were sent during later attacks."""
    proofs: int = 0
    """How often a client sent the proof of its password after a challenge that it must refuse."""

    def plus(self, other: "Received") -> "Received":
        """Return the sum of two phases of the same attack."""
        return Received(
            attack=self.attack,
            seconds=self.seconds + other.seconds,
            connections=self.connections + other.connections,
            requests=self.requests + other.requests,
            hits=self.hits + other.hits,
            proofs=self.proofs + other.proofs,
        )


class Broker:
    """One listener, whose attacks follow each other."""

    def __init__(self, port: int, target_port: int, phases: Sequence[Phase], seed: int) -> None:
        """`target_port` belongs to the target's broker, to which some answers point."""
        self.received = [Received(attack=HONEST, seconds=0.0)]
        self._port = port
        self._target_port = target_port
        self._phases = phases
        self._phase = Phase(-1, HONEST, -1, 0.0)
        self._server: asyncio.Server | None = None
        self._exchanges: dict[bytes, tuple[bytes, bytes]] = {}
        """The client's first message and the challenge of each exchange of SCRAM, by its nonce."""
        self._chance = random.Random(seed)
        self._topics = {wire.topic_id(PLAIN): (Topic(PLAIN, 2), "")}
        """The topics by their ids, with the attack of their batches. Empty: they have no records."""
        self._open: set[asyncio.Task[None]] = set()

    async def listen(self) -> None:
        """Begin to accept connections."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)

    def refuse(self) -> None:
        """Close all connections, and refuse new ones."""
        if self._server is not None:
            self._server.close()
        self._disconnect()

    async def attack(self) -> None:
        """Play all phases."""
        self.received.clear()
        self._begin(self._phases[0])
        await self.listen()
        for phase in self._phases:
            if phase is not self._phase:
                self._begin(phase)
            await asyncio.sleep(phase.seconds)

    def _begin(self, phase: Phase) -> None:
        self._phase = phase
        self.received.append(Received(attack=phase.attack, seconds=round(phase.seconds, 1)))
        if phase.attack in BATCHES:
            name = f"{phase.attack.translate(_NAMED)}-{phase.number}".encode()
            self._topics[wire.topic_id(name)] = Topic(name, 2), phase.attack
        self._disconnect()  # so that attacks on new connections begin at once

    def _disconnect(self) -> None:
        for task in self._open:
            task.cancel()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.received[-1].connections += 1
        task = asyncio.create_task(self._serve(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (asked := await _read(reader)) is not None:
                self.received[-1].requests += 1
                phase = self._phase
                if phase.attack in STREAMS and phase.api == asked.api:
                    self._hit()
                    await self._stream(phase.attack, asked, writer)
                    return
                answer = await self._answer(asked)
                if answer is None:
                    return
                writer.write(answer)
                await writer.drain()
        except (OSError, EOFError, WireError):
            pass  # the client has closed the connection, or sends what is not offered to it
        finally:
            writer.transport.abort()

    def _hit(self) -> None:
        self.received[-1].hits += 1

    async def _stream(self, attack: str, asked: Request, writer: asyncio.StreamWriter) -> None:
        """Send bytes until the client closes the connection, or the phase ends."""
        match attack:
            case "frame of 2 GiB":
                writer.write(INT32.pack((1 << 31) - 1))
                await _send_forever(writer, self._chance.randbytes(_CHUNK))
            case "negative length":
                writer.write(INT32.pack(self._chance.choice(_NEGATIVE)))
                await _send_forever(writer, bytes(_CHUNK))
            case "endless bytes":
                await _send_forever(writer, bytes(_CHUNK))
            case "silence":
                await asyncio.Event().wait()
            case "random bytes":
                writer.write(self._chance.randbytes(_CHUNK))
                await writer.drain()
            case "one byte a second":
                writer.write(INT32.pack(1_000))
                await _send_forever(writer, b"\0", 1.0)
            case "wrong correlation id":
                answer = await self._answer(asked, wrong_by=self._chance.choice((1, -1, 1 << 20)))
                writer.write(answer or b"")
                await asyncio.Event().wait()
            case _:
                return  # the connection is closed

    async def _answer(self, asked: Request, wrong_by: int = 0) -> bytes | None:
        """Return the answer. None: the connection is to be closed."""
        if asked.api == FETCH.key:
            body = await self._fetched(asked)
        elif (valid := self._plain_answer(asked)) is not None:
            body = valid
        else:
            return None
        return wire.framed(asked, body, wrong_by=wrong_by)

    def _plain_answer(self, asked: Request) -> bytes | None:
        """Return the body of an answer that does not wait. None: the API is not offered."""
        match asked.api:
            case wire.API_VERSIONS:
                return self._versions()
            case METADATA.key:
                return self._metadata(asked)
            case LIST_OFFSETS.key:
                return wire.listed(wire.asked_by_list_offsets(asked.body))
            case OFFSET_FOR_LEADER_EPOCH.key:
                return wire.epoch_ends(wire.asked_by_epoch_ends(asked.body))
            case wire.SASL_HANDSHAKE:
                return wire.sasl_handshake(MECHANISM)
            case wire.SASL_AUTHENTICATE:
                return self._authenticated(asked)
            case _:
                return None

    async def _fetched(self, asked: Request) -> bytes:
        wait_s, partitions = wire.asked_by_fetch(asked.body)
        answers: list[tuple[wire.Asked, bytes, int]] = []
        for each in partitions:
            _, attack = self._topics.get(each.topic, (None, ""))
            if attack and attack in {self._phase.attack, *LASTING}:
                next(phase for phase in reversed(self.received) if phase.attack == attack).hits += 1
                answers.append((each, *batches.answer(attack, each.position)))
        await asyncio.sleep(_LEAST_WAIT_S if answers else wait_s)
        return wire.fetched(answers)

    def _versions(self) -> bytes:
        absurd = self._phase.attack == ABSURD_VERSIONS
        self.received[-1].hits += absurd
        return wire.api_versions(self._chance.randrange(wire.ABSURD_KINDS) if absurd else None)

    def _metadata(self, asked: Request) -> bytes:
        brokers = [(wire.NODE, self._port)]
        names, known = wire.asked_by_metadata(asked.body), {topic.name: topic for topic, _ in self._topics.values()}
        self.received[-1].hits += self._phase.attack in {MANY_PARTITIONS, ODD_NAMES, ELSEWHERE}
        more: list[Topic] = []
        match self._phase.attack:
            case name if name == MANY_PARTITIONS:
                return _many(asked.version, self._port)
            case name if name == ODD_NAMES:
                odd = [*ODD, NOT_UTF8] if self._chance.random() < 0.5 else ODD
                more = [Topic(each, 1) for each in odd]
            case name if name == ELSEWHERE:
                brokers = [(wire.NODE, self._port), (2, 1), (3, self._target_port)]
                more = [Topic(b"elsewhere-%d" % leader, 1, leader) for leader in (2, 3, 4)]
            case _:
                pass
        if names is None:
            return wire.metadata(asked.version, brokers, [*known.values(), *more])
        known |= {topic.name: topic for topic in more}
        return wire.metadata(
            asked.version, brokers, [known.get(name, Topic(name, 0, error=_UNKNOWN)) for name in names]
        )

    def _authenticated(self, asked: Request) -> bytes:
        token = bytes(asked.body.buffer[asked.body.position + 4 :])
        attack = self._phase.attack
        if b",p=" not in token:
            challenge = wire.scram_challenge(attack, token)
            self._exchanges[wire.nonce(challenge)] = token, challenge
            self.received[-1].hits += attack != HONEST
            return wire.sasl_authenticated(asked.version, challenge)
        exchange = self._exchanges.pop(wire.nonce(token), None)
        self.received[-1].proofs += attack in REFUSED
        is_honest = attack == HONEST and exchange is not None
        signature = wire.scram_signature(PASSWORD.encode(), *exchange, token) if is_honest and exchange else b""
        return wire.sasl_authenticated(asked.version, signature)


_NAMED = str.maketrans(" ^", "--")
"""Attacks become valid names of topics."""


@cache
def _many(version: int, port: int) -> bytes:
    return wire.metadata(version, [(wire.NODE, port)], [Topic(b"many", PARTITIONS)])


async def _read(reader: asyncio.StreamReader) -> Request | None:
    """Return the next request, or None if it is too long. Raises EOFError."""
    size = int.from_bytes(await reader.readexactly(4))
    return wire.request(await reader.readexactly(size)) if size <= _LARGEST_REQUEST else None


async def _send_forever(writer: asyncio.StreamWriter, data: bytes, pause_s: float = 0.0) -> None:
    while True:
        writer.write(data)
        await writer.drain()
        await asyncio.sleep(pause_s)


async def _line() -> None:
    await asyncio.to_thread(sys.stdin.readline)


async def serve(brokers: Sequence[Broker]) -> None:
    """Follow the lines of the standard input."""
    for broker in brokers:
        await broker.listen()
    print("ready", flush=True)
    await _line()
    for broker in brokers:
        broker.refuse()
    await _line()
    running = asyncio.gather(*(broker.attack() for broker in brokers))
    ending = asyncio.create_task(_line())
    await asyncio.wait((ending, running), return_when=asyncio.FIRST_COMPLETED)
    if not ending.done():
        await running  # raises what has ended it
        await ending
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    for broker in brokers:
        broker.refuse()


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.faults.hostile.broker", description=__doc__)
    for name in ("port", "scram_port", "target_port", "seed"):
        parser.add_argument(name, type=int)
    parser.add_argument("minutes", type=float)
    given = parser.parse_args()
    # Attackers use their own machines. What sending costs this process must not delay the healthy flow.
    os.nice(_LEAST_PRIORITY)
    for attack in BATCHES:
        batches.answer(attack, 0)  # bombs take seconds
    brokers = [
        Broker(port, given.target_port, rotation(attacks, given.seed, given.minutes), given.seed)
        for port, attacks in ((given.port, ALL), (given.scram_port, SCRAM))
    ]
    asyncio.run(serve(brokers))
    print(msgspec.json.encode([broker.received for broker in brokers]).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
