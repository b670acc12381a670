"""Translated offsets on real brokers, by content: they point at exactly the intended record."""

import asyncio
import json
import time
import urllib.request
from collections.abc import Generator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from mirrord.kafka.client.topic_admin import ClusterTopics, KafkaTopicAdmin
from mirrord.lab.cluster import Cluster
from mirrord.lab.server_properties import LabOptions
from mirrord.supervision import pruning
from mirrord.supervision.pruning import prune_for_ever
from mirrord.topics.discovery import Discovered
from mirrord.translate import Question, translate_all
from tests.fixtures.daemon import Daemon, all_ends, fill, mirrord, unique
from tests.fixtures.daemon import conf as configured
from tests.fixtures.lab import LabPair, client_settings, pair_of
from tests.fixtures.mirror import SECONDS, Mirror, Written, config_of, copy_of, create_topic, ends, mirror, until, write

LAGS = (0, 1, 137, 10_000)
DEAD = "127.0.0.1:1"


@pytest.fixture(scope="module")
def pair() -> Generator[LabPair]:
    """A source that compacts at once."""
    with pair_of(LabOptions(properties={"log.cleaner.backoff.ms": "300"}), LabOptions()) as pair:
        yield pair


def contents(cluster: Cluster, topic: str) -> dict[int, bytes]:
    """The records that a committed reader finds, by offset."""
    end = ends(cluster, topic)[0]
    settings = {
        "group.id": "tests",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
    }
    consumer = Consumer({**client_settings(cluster), **settings, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: dict[int, bytes] = {}
    deadline = time.monotonic() + SECONDS
    try:
        while consumer.position([TopicPartition(topic, 0)])[0].offset < end:
            for message in consumer.consume(5_000, 0.5):
                if message.error() is None:
                    found[message.offset() or 0] = message.value() or b""
            assert time.monotonic() < deadline
        return found
    finally:
        consumer.close()


def write_transactions(cluster: Cluster, topic: str, first: int, transactions: int) -> None:
    """100 records each; every fourth is aborted."""
    producer = Producer({**client_settings(cluster), "transactional.id": topic, "linger.ms": 5})
    producer.init_transactions(SECONDS)
    for number in range(first, first + transactions):
        producer.begin_transaction()
        for record in range(100):
            producer.produce(topic, b"%d of %d" % (record, number), partition=0)
        if number % 4 == 3:
            producer.flush(SECONDS)  # an empty transaction cannot be aborted
            producer.abort_transaction(SECONDS)
        else:
            producer.commit_transaction(SECONDS)


def write_foreign(flow: Mirror, topic: str, time_ms: int = 0) -> None:
    """Another client writes into the target topic."""
    write(flow.target, copy_of(topic), [Written(b"k", b"foreign %d" % each, time_ms=time_ms) for each in range(7)])


async def write_compacted(flow: Mirror) -> str:
    """A topic with holes."""
    topic = flow.topic(
        cleanup_policy="compact", segment_ms="200", min_cleanable_dirty_ratio="0.01", min_compaction_lag_ms="0"
    )
    for turn in range(4):
        keys = [Written(b"%d" % (number % 50), b"%d in turn %d" % (number, turn)) for number in range(500)]
        write(flow.source, topic, keys, batch_num_messages=20)
        await asyncio.sleep(0.3)
    deadline, last = time.monotonic() + SECONDS, 0
    while len(await asyncio.to_thread(contents, flow.source, topic)) > 1_500:
        # Only a segment that is no longer written to is compacted.
        write(flow.source, topic, [Written(b"last", b"the last one, %d" % last)])
        last += 1
        assert time.monotonic() < deadline
    return topic


def conf(folder: Path, flow: Mirror) -> Path:
    """As `mirror` runs it, except for the source, which is down."""
    path = folder / "conf.toml"
    path.write_text(
        f'[clusters.eu]\nbootstrap = "{DEAD}"\n[clusters.us]\nbootstrap = "{flow.target.bootstrap}"\n'
        f'[[flows]]\nname = "{flow.setup.flow.name}"\nfrom = "eu"\nto = "us"\ntopics = [".*"]\n'
    )
    return path


async def marked(flow: Mirror) -> None:
    """Wait until everything copied is below the marks."""
    await flow.caught_up()
    sources = {topic: (await asyncio.to_thread(ends, flow.source, topic))[0] for topic in flow.topics}

    def is_marked() -> bool:
        marks = [flow.state.progress.get(lane) for lane in flow.state.lanes]
        wanted = [sources[lane.source_topic] for lane in flow.state.lanes.values()]
        return all(mark and mark.source_offset >= end for mark, end in zip(marks, wanted, strict=True))

    await until(is_marked)


def expect(here: dict[int, bytes], there: dict[int, bytes], end: int) -> dict[int, int]:
    """For each offset of one side up to `end`, the offset on the other side of the first record from there on."""
    places = {value: offset for offset, value in there.items()}
    assert len(places) == len(there)
    known = [(offset, places[value]) for offset, value in sorted(here.items(), reverse=True) if value in places]
    expected: dict[int, int] = {}
    next_one = known[0][1] + 1
    for offset in range(end, -1, -1):
        while known and known[0][0] >= offset:
            next_one = known.pop(0)[1]
        expected[offset] = next_one
    return expected


async def test_every_offset_points_at_the_same_record(pair: LabPair, tmp_path: Path) -> None:
    async with mirror(pair.source, pair.target) as flow:
        compacted = await write_compacted(flow)
        before = await asyncio.to_thread(contents, flow.source, compacted)
        transactional = flow.topic()
        await asyncio.to_thread(write_transactions, flow.source, transactional, 0, 80)
        write_foreign(flow, transactional)
        await flow.copying()
        await flow.caught_up()
        for topic in (transactional, compacted):
            write_foreign(flow, topic)
        await asyncio.to_thread(write_transactions, flow.source, transactional, 80, 80)
        await marked(flow)
        path = conf(tmp_path, flow)
        original = await asyncio.to_thread(contents, flow.source, transactional)
        assert len(original) >= max(LAGS)
        await asyncio.to_thread(compare, flow, path, transactional, original)
        await asyncio.to_thread(compare, flow, path, compacted, before)


def compare(flow: Mirror, path: Path, topic: str, source: dict[int, bytes]) -> None:
    """Ask for every offset of both sides."""
    name, end = flow.setup.flow.name, ends(flow.source, topic)[0]
    target = {at: value for at, value in contents(flow.target, copy_of(topic)).items() if b"foreign" not in value}
    copied = set(target.values())
    assert len(copied) == len(target) < len(source) + 1 <= end
    expected = expect(source, target, end)
    asked = [Question(flow=name, topic=topic, partition=0, offset=offset) for offset in expected]
    answers = {answer.asked: answer for answer in translate_all(path, asked)}
    assert {offset: answer.offset for offset, answer in answers.items()} == expected
    assert {offset for offset, each in answers.items() if each.kind == "exact"} == {
        offset for offset, value in source.items() if value in copied
    }
    for lag in LAGS:
        position = sorted(source)[-lag] if 0 < lag <= len(source) else end
        if (there := answers[position]).kind == "exact":
            assert target[there.offset or 0] == source[position]
    expected = expect(target, source, max(target) + 1)
    asked = [Question(flow=name, topic=copy_of(topic), partition=0, offset=offset, reverse=True) for offset in expected]
    back = {answer.asked: answer.offset for answer in translate_all(path, asked)}
    assert {at: offset for at, offset in back.items() if at <= max(target)} == {
        at: offset for at, offset in expected.items() if at <= max(target)
    }
    # After the last record the source may hold markers, which no client reads.
    assert max(source) < (back[max(target) + 1] or 0) <= end


async def test_the_verb_by_offset_and_by_time(pair: LabPair, tmp_path: Path) -> None:
    async with mirror(pair.source, pair.target) as flow:
        topic = flow.topic()
        began = int(time.time() * 1000) - 100_000
        write(flow.source, topic, [Written(None, b"%d" % at, time_ms=began + at) for at in range(50)])
        write_foreign(flow, topic, began - 1)
        await flow.copying()
        await marked(flow)
        path, name = conf(tmp_path, flow), flow.setup.flow.name

        def ask(*arguments: str, code: int = 0) -> str:
            done = mirrord("translate", path, name, *arguments)
            assert done.returncode == code, done.stderr
            return done.stdout if code != 2 else done.stderr

        line = await asyncio.to_thread(ask, topic, "0", "20")
        assert f"resume at offset 27 of {copy_of(topic)}-0 of us: this is the same record" in line
        back = await asyncio.to_thread(ask, copy_of(topic), "0", f"@{began + 20}", "--reverse", "--json")
        answer = json.loads(back)
        assert (answer["asked"], answer["offset"], answer["time_ms"]) == (27, 20, began + 20)
        assert "partition 4" in await asyncio.to_thread(lambda: ask(topic, "4", "20", code=2))
        text = path.read_text().replace(f'"{DEAD}"', f'"{flow.source.bootstrap}"')
        path.write_text(text)
        answer = json.loads(await asyncio.to_thread(ask, topic, "0", f"@{began + 30}", "--json"))
        assert (answer["asked"], answer["offset"], answer["kind"]) == (30, 37, "exact")
        answer = json.loads(await asyncio.to_thread(ask, topic, "0", f"@{began + 90_000}", "--json"))
        assert (answer["asked"], answer["offset"], answer["kind"]) == (50, 57, "at_end")


def test_a_daemon_answers_over_http(pair: LabPair, tmp_path: Path) -> None:
    topic, flow = create_topic(pair.source, unique("orders"), 2), unique("http")
    path = configured(tmp_path, pair.source, pair.target, topic, flow=flow)
    fill(pair.source, topic, 2, 200)
    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(pair.source, topic))

        def ask(query: str) -> dict[str, Any]:
            with urllib.request.urlopen(f"{daemon.http()}/translate?flow={flow}&{query}", timeout=SECONDS) as answer:
                return json.loads(answer.read())

        daemon.until(lambda: ask(f"topic={topic}&partition=1&offset=99")["kind"] == "exact")
        translated = ask(f"topic=eu.{topic}&partition=1&offset=100&reverse")
        assert (translated["kind"], translated["offset"], translated["there"]["topic"]) == ("at_end", 100, topic)
        with pytest.raises(HTTPError, match="404"):
            ask("topic=nothing&partition=0&offset=1")
        assert daemon.stop() == 0


async def test_runs_below_both_log_starts_are_forgotten_by_all_readers(
    pair: LabPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "PRUNE_S", 0.2)
    async with mirror(pair.source, pair.target) as flow:
        topic = flow.topic()
        await asyncio.to_thread(write_transactions, flow.source, topic, 0, 40)
        replicator = await flow.copying()
        await marked(flow)
        reader = replicator._store.state.lanes[flow.lane().key.id]  # pyright: ignore[reportPrivateUsage]
        assert len(reader.source_runs) == len(flow.lane().source_runs) >= 30
        looks: list[ClusterTopics] = []
        for cluster in (flow.source, flow.target):
            admin = KafkaTopicAdmin(config_of(cluster), SECONDS)
            looks.append(await admin.describe())
            await admin.close()
        seen = Discovered((), (), {}, {}, "", source=looks[0], target=looks[1])
        work = asyncio.create_task(prune_for_ever(flow.store, lambda: seen, config_of(flow.source), flow.setup.target))
        whole = len(flow.lane().source_runs)
        await asyncio.to_thread(delete_below, flow.source, topic, 3_000)
        await asyncio.to_thread(delete_below, flow.target, copy_of(topic), 2_000)
        await until(lambda: len(flow.lane().source_runs) < whole)
        work.cancel()
        assert flow.lane().source_runs.offset_of(2_000) is not None
        assert flow.lane().source_runs.offset_of(1_800) is None
        await flow.store.trim()
        await until(lambda: reader.source_runs == flow.lane().source_runs)
        source = await asyncio.to_thread(contents, flow.source, topic)
        target = await asyncio.to_thread(contents, flow.target, copy_of(topic))
        end = ends(flow.source, topic)[0]
        path, expected = conf(tmp_path, flow), expect(source, target, end)
        asked = [Question(flow=flow.setup.flow.name, topic=topic, partition=0, offset=at) for at in range(3_000, end)]
        translated = {answer.asked: answer.offset for answer in await asyncio.to_thread(translate_all, path, asked)}
        assert translated == {at: expected[at] for at in translated}


def delete_below(cluster: Cluster, topic: str, offset: int) -> None:
    """DeleteRecords."""
    admin = AdminClient(client_settings(cluster))
    for future in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        future.result(SECONDS)
