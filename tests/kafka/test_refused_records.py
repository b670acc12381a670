"""Records that a real target refuses for their content: batches are split, one record waits, and nothing else does."""

import asyncio
import random
import time

import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from mirrord.config.flow_features import SyncConfig
from mirrord.config.schema import Config
from mirrord.kafka.protocol.record import DecodedRecord
from mirrord.kafka.records.record_decoding import ReadRecords
from mirrord.kafka.records.steps import finish
from mirrord.lab.cluster import Cluster
from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.core import Verdict
from mirrord.ledger.facts.quarantine import QuarantineSkipped
from mirrord.ledger.quarantine import BY_POLICY, Parked, waiting
from mirrord.ledger.standing_orders import Order
from mirrord.model import names
from mirrord.model.names import LaneId, dead_letter_topic
from mirrord.operations.quarantine_entries import find
from mirrord.operations.quarantine_parking import bring_back, park
from mirrord.replication.dead_letters.records import LetterPlace, Returned, TargetPosition
from mirrord.replication.dead_letters.replayed import brought_back
from mirrord.replication.dead_letters.topic import DeadLetters, NotParked
from mirrord.replication.host.batch_rebuild import building
from mirrord.replication.lane.second_path import RebuildRequest
from tests.fixtures.lab import LabPair, client_settings
from tests.fixtures.mirror import (
    SECONDS,
    Mirror,
    Written,
    copy_of,
    messages,
    mirror,
    until,
    until_ends,
    write,
    write_batches,
)

SMALL, LARGE = 2_000, 150_000
LIMIT = "100000"
"""max.message.bytes of the target; the source accepts 4 MB."""
ADA = Origin("ada@host", "too large for the target", 0)
HOUR_MS = 3_600_000
NOT_SYNCED = SyncConfig(configs=False)


def records(chance: random.Random, count: int, size: int, partition: int = 0) -> list[Written]:
    """Records that no codec makes smaller."""
    return [Written(b"%d" % at, chance.randbytes(size), partition=partition) for at in range(count)]


async def values(cluster: Cluster, topic: str, partition: int = 0) -> list[bytes | None]:
    """The values of all records in the partition."""
    return [message.value() for message in await asyncio.to_thread(messages, cluster, topic, partition)]


async def alter(cluster: Cluster, topic: str, name: str, value: str) -> None:
    """Change a config of a topic."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient(client_settings(cluster))
    for future in admin.incremental_alter_configs([resource]).values():
        await asyncio.to_thread(future.result, SECONDS)
    # The controller knows it; the brokers learn of it.
    asked, deadline = ConfigResource(ResourceType.TOPIC, topic), time.monotonic() + SECONDS
    while (await asyncio.to_thread(admin.describe_configs([asked])[asked].result, SECONDS))[name].value != value:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


def committed(cluster: Cluster, topic: str) -> list[Message]:
    """All records of the first partition that a committed reader sees. With transactions the log ends with a marker,
    which no reader is given."""
    consumer = Consumer({
        **client_settings(cluster), "group.id": "tests", "enable.auto.commit": False, "enable.partition.eof": True
    })  # fmt: skip
    found: list[Message] = []
    consumer.assign([TopicPartition(topic, 0, 0)])
    deadline = time.monotonic() + SECONDS
    try:
        while True:
            assert time.monotonic() < deadline, f"{topic} was not read to its end"
            for message in consumer.consume(1_000, 0.2):
                error = message.error()
                if error is None:
                    found.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    return found
    finally:
        consumer.close()


def config_of_flow(flow: Mirror) -> Config:
    """The config as a user of the command line has it."""
    return Config({"eu": flow.setup.source, "us": flow.setup.target}, (flow.setup.flow,))


async def parked_once(flow: Mirror, topic: str, value: bytes | None) -> Order:
    """The command to skip source offset 150, once its record is parked."""
    config, name = config_of_flow(flow), flow.setup.flow.name
    order = Order(verb="skip", name=f"{topic}-0", offset=150, by=ADA.by, reason=ADA.reason)
    parked = await park(config, order, name, 0)
    assert parked.letters == 1
    assert await park(config, order, name, 1) == parked
    (letter,) = await asyncio.to_thread(committed, flow.target, dead_letter_topic(name))
    (_, original) = (await asyncio.to_thread(messages, flow.source, topic, 0))[149:151]
    assert (letter.key(), letter.value(), letter.timestamp()) == (b"0", value, original.timestamp())
    assert dict(letter.headers() or [])["mirrord.offset"] == b"150"
    return parked


async def brought_back_once(flow: Mirror, topic: str, order: Order, value: bytes | None) -> None:
    """What is parked comes last in the target topic, if that accepts it, however often this is ordered."""
    config = config_of_flow(flow)
    left_out = await find(config, order)
    assert left_out is not None
    assert len((await bring_back(config, order, left_out, None, dry_run=True)).done) == 1
    first = await bring_back(config, order, left_out, None, dry_run=False)
    again = await bring_back(config, order, left_out, None, dry_run=False)
    assert (len(first.done), again.done) == (1, ())
    assert again.notes == (f"{first.done[0]} already",)
    (*_, back) = await asyncio.to_thread(committed, flow.target, copy_of(topic))
    assert first.done[0].endswith(f"{copy_of(topic)}-0 offset {back.offset()}")
    assert (back.value(), back.headers()) == (value, None)
    await flow.store.read_to_end()
    returned = await brought_back(config, flow.setup.flow, flow.state)
    standing = TargetPosition(names.TopicPartition(copy_of(topic), 0), back.offset() or 0)
    assert returned == ({flow.lane().key.id: [Returned(150, str(standing))]}, "")


async def waits(flow: Mirror) -> tuple[LaneId, Parked]:
    """The entry that the first partition waits at, once there is one."""
    found: list[tuple[LaneId, Parked]] = []

    def look() -> bool:
        for lane_id, lane in flow.state.lanes.items():
            entry = waiting(lane.quarantine) if lane.partition == 0 else None
            if entry is not None and lane.halted is not None:
                found.append((lane_id, entry))
        return bool(found)

    await until(look)
    return found[-1]


async def test_batches_and_records_that_are_larger_than_the_target_takes(lab_pair: LabPair) -> None:
    chance = random.Random(5)
    async with mirror(lab_pair.source, lab_pair.target, sync=NOT_SYNCED) as flow:
        topic = flow.topic(2, {"max_message_bytes": LIMIT}, max_message_bytes="4000000")
        for partition in range(2):
            large = records(chance, 1, LARGE) if partition == 0 else []
            written = [*records(chance, 150, SMALL, partition), *large, *records(chance, 150, SMALL, partition), *large]
            await write_batches(flow.source, topic, written, "lz4")
        wanted = await values(flow.source, topic)
        assert len(wanted) == 302
        (stored, _) = await flow.batches(topic)
        assert len(stored) == 1
        replicator = await flow.copying()
        lane, entry = await waits(flow)
        assert (entry.start, entry.end, entry.error) == (150, 151, 10)
        await until_ends(flow.target, copy_of(topic), {0: 150, 1: 300})
        (halted,) = [each for each in replicator.report().lanes if each.phase == "halted"]
        assert "source offset 150 with Kafka error 10 (MESSAGE_TOO_LARGE)" in halted.note
        parked = await parked_once(flow, topic, wanted[150])
        skip = QuarantineSkipped(lane, entry.start, entry.end, ADA, parked.letters, parked.letters_at)
        assert await flow.store.append(flow.setup.lease_epoch, [skip, skip]) == (True, False)
        await until_ends(flow.target, copy_of(topic), {0: 300})
        _, entry = await waits(flow)
        assert (entry.start, entry.end) == (301, 302)
        await alter(flow.target, copy_of(topic), "max.message.bytes", "4000000")
        # It resumes without a command, because the configs of the target topic have changed.
        await until(lambda: all(each.phase != "halted" for each in replicator.report().lanes))
        reports = await flow.caught_up(replicator)
        assert sum(each.rebuilt.get("split", 0) + each.rebuilt.get("inside-batch", 0) for each in reports) > 0
        assert await values(flow.target, copy_of(topic)) == [*wanted[:150], *wanted[151:]]
        assert await values(flow.target, copy_of(topic), 1) == await values(flow.source, topic, 1)
        await brought_back_once(flow, topic, parked, wanted[150])
        await flow.store.read_to_end()
        assert flow.lane().verdicts.counts == {"rejected": 1}
        assert list(flow.lane().verdicts.recent) == [Verdict(150, 151, "rejected")]
        line = flow.lane().quarantine[0].line
        assert flow.lane().quarantine == (Parked(150, 151, 10, line, ADA, 1, parked.letters_at, epoch=0),)


async def kept_once(flow: Mirror, topic: str, values: dict[bytes, bytes | None]) -> None:
    """Records that a policy skips are in the dead-letter topic once, even if the next holder of the lane writes them
    again. A topic that does not accept a record says why."""
    name, lane = flow.setup.flow.name, flow.lane().key.id
    dead = dead_letter_topic(name)
    letters = await asyncio.to_thread(committed, flow.target, dead)
    assert {dict(each.headers() or [])["mirrord.offset"]: each.value() for each in letters} == values
    assert [each.letters_at for each in flow.lane().quarantine] == [each.offset() for each in letters]
    for behind in (-1, letters[-1].offset() or 0):
        other = DeadLetters(flow.setup.flow, flow.setup.source, flow.setup.target)
        last = letters[-1]
        record = DecodedRecord(60, last.timestamp()[1], last.key(), last.value(), ())
        data = bytes(
            finish(building(ReadRecords(0, []), [record], RebuildRequest(bytearray(), 0, 0, 60, 7, 0, 0))).data
        )
        assert await other.keep(LetterPlace(topic, 0, 60, lane), data, BY_POLICY, behind) == last.offset()
    assert len(await asyncio.to_thread(committed, flow.target, dead)) == len(letters)
    await alter(flow.target, dead, "max.message.bytes", "70")
    with pytest.raises(NotParked, match="MessageSizeTooLarge"):
        await other.keep(LetterPlace(topic, 0, 61, lane), data, BY_POLICY)


async def test_by_policy_what_the_target_refuses_is_parked_and_left_out(lab_pair: LabPair) -> None:
    """A record without a key for a compacted target topic, and one with tomorrow's timestamp (KIP-937)."""
    async with mirror(lab_pair.source, lab_pair.target, on_reject="skip", sync=NOT_SYNCED) as flow:
        of_copy = {"cleanup_policy": "compact", "message_timestamp_after_max_ms": str(HOUR_MS)}
        topic = flow.topic(1, of_copy, message_timestamp_after_max_ms=str(48 * HOUR_MS))
        now_ms = int(time.time() * 1000)
        odd = {20: Written(None, b"no key"), 60: Written(b"late", b"of tomorrow", time_ms=now_ms + 24 * HOUR_MS)}
        write(flow.source, topic, [odd.get(at, Written(b"%d" % at, b"value %d" % at)) for at in range(100)])
        replicator = await flow.copying()
        await until_ends(flow.target, copy_of(topic), {0: 98})
        await flow.caught_up(replicator)
        wanted = await values(flow.source, topic)
        assert await values(flow.target, copy_of(topic)) == [value for at, value in enumerate(wanted) if at not in odd]
        await flow.store.read_to_end()
        assert [(each.start, each.error, each.skipped, each.letters) for each in flow.lane().quarantine] == [
            (20, 87, BY_POLICY, 1),
            (60, 32, BY_POLICY, 1),
        ]
        await kept_once(flow, topic, {b"%d" % at: wanted[at] for at in odd})
        assert flow.lane().verdicts.counts["rejected"] == 2
