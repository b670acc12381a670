"""Filters and transforms on real brokers: exactly once too, whatever a filter answers and whenever a process dies."""

import json
import time
from pathlib import Path

from mirrord.kafka.protocol.api_versions import FETCH
from mirrord.kafka.protocol.fetch_session import FetchSession
from mirrord.kafka.protocol.producer_ids import ProducerIdentity
from mirrord.kafka.protocol.record import DecodedRecord
from mirrord.kafka.records.header_names import builder_for, writable_headers
from mirrord.kafka.records.steps import finish
from tests.fixtures.daemon import Daemon, Load, all_ends, conf, mirrord, unique
from tests.fixtures.lab import LabPair
from tests.fixtures.mirror import create_topic, messages
from tests.fixtures.wire import describe, fetch_once, linked, new_producer, produce_one, topic_in, topic_key

SAMPLE = "tests.fixtures.sample_policies"
RULES = f'records = {{ filter = "{SAMPLE}:Fickle", transform = "{SAMPLE}:Upper" }}'


def test_a_fickle_filter_under_kill_9(lab_pair: LabPair, tmp_path: Path) -> None:
    source, target = lab_pair.source, lab_pair.target
    topic = create_topic(source, unique("shaped"), 1)
    path = conf(tmp_path, source, target, topic, flow=unique("shape"), flow_more=RULES)
    # Policies take a moment for each record, which adds up on a loaded machine.
    with Load(source, topic, 1, at_once=10).running() as load:
        for _ in range(2):
            with Daemon(path) as daemon:
                daemon.until(lambda daemon=daemon: (daemon.flow().totals.copied_records or 0) > 0)
                load.wait_for(500)
                daemon.kill()
        load.wait_for(500)  # so that the last one finds work
    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(source, topic))
        (lane,) = daemon.flow().lanes
        assert lane.raw_batches == 0
        assert set(lane.rebuilt_batches) == {"policy"}
        assert daemon.stop() == 0
    gaps = json.loads(mirrord("gaps", path, "--all", "--json").stdout)["gaps"]
    assert {gap["reason"] for gap in gaps} == {"filtered"}
    left_out = {offset for gap in gaps for offset in range(gap["start"], gap["end"])}
    written = [message.value() or b"" for message in messages(source, topic)]
    wanted = [value.upper() for at, value in enumerate(written) if at not in left_out]
    assert len(wanted) + len(left_out) == load.written
    assert [message.value() for message in messages(target, f"eu.{topic}")] == wanted


def _raw_names(producer: ProducerIdentity, sequence: int) -> bytes:
    """A batch of one record, whose header has a name that is not UTF-8."""
    name = b"a\xff\xfe".decode("utf-8", "surrogateescape")
    record = DecodedRecord(0, int(time.time() * 1000), b"key", b"value", [(name, b"1")])
    builder = finish(
        builder_for(
            [record],
            magic=2,
            compression_type=0,
            is_transactional=0,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=sequence,
            batch_size=1 << 20,
        )
    )
    builder.append(0, record.time_ms, record.key, record.value, writable_headers(record))
    return bytes(builder.build())


async def test_header_names_that_are_not_utf8(lab_pair: LabPair, tmp_path: Path) -> None:
    """Clients in other languages than Java write any bytes. They arrive, whether a batch is copied raw or rebuilt."""
    source, target = lab_pair.source, lab_pair.target
    for rules, rebuilt in (("", 0), (f'records = {{ transform = "{SAMPLE}:Upper" }}', 3)):
        async with linked(source) as connection:
            topic = await topic_in(source, connection)
            producer = await new_producer(connection)
            written = [_raw_names(producer, sequence) for sequence in range(3)]
            for batch in written:
                assert (await produce_one(connection, topic, 0, batch)).error == 0
        path = conf(tmp_path, source, target, str(topic.name), flow=unique("names"), flow_more=rules)
        with Daemon(path) as daemon:
            daemon.until_copied({(str(topic.name), 0): 3})
            (lane,) = daemon.flow().lanes
            assert (lane.raw_batches, sum(lane.rebuilt_batches.values())) == (3 - rebuilt, rebuilt)
            assert daemon.stop() == 0
        audit = mirrord("audit", path, "--level", "digest", "--json")
        assert audit.returncode == 0, audit.stderr
        diverging = mirrord("divergence", path, "--json")
        assert diverging.returncode == 0, diverging.stderr
        async with linked(target) as connection:
            (copy,) = (await describe(connection, f"eu.{topic.name}")).topics
            key = topic_key(connection, FETCH, copy), 0
            response, frame = await fetch_once(connection, FetchSession(), {key: 0})
            assert frame.buffer.count(b"a\xff\xfe") == 3, repr(response)
