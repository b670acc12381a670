"""Target topics that the cleaner has thinned out: no older value comes after a newer one, and nothing is lost."""

import json
import time
from asyncio import to_thread as in_thread
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mirrord.lab.server_properties import LabOptions
from mirrord.replication.host.replicator import Replicator
from tests.fixtures.compacted import (
    BROKER,
    ROLLED,
    STEP_MS,
    TOPIC,
    CompactedCopy,
    Pair,
    audited,
    pairs,
    progress_rows,
    restore_progress_rows,
    until_copied,
)
from tests.fixtures.daemon import SECONDS, Daemon, conf, lose_ledger, mirrord, unique
from tests.fixtures.lab import LabPair, pair_of
from tests.fixtures.mirror import Mirror, copy_of, create_topic, ends, mirror, until, until_ends

KEYS = 5
NEWER = Pair(b"k0", b"newer than what was lost")
OLD, LATER = pairs("old", 1, 2, 3, 4, 5, 6), pairs("later", 101, 102, 103)


@pytest.fixture(scope="module")
def _pair() -> Generator[LabPair]:
    with pair_of(LabOptions(), LabOptions(brokers=2, heap_mb=256, properties=BROKER)) as pair:
        yield pair


@pytest.fixture
def pair(_pair: LabPair) -> Generator[LabPair]:
    yield _pair
    _pair.target.mend()


def compacted(pair: LabPair, batches: int, *, in_process: bool = False) -> CompactedCopy:
    """A topic and its target topic, with this many batches whose times end now."""
    topic = create_topic(pair.source, unique("orders"), 1)
    copy = copy_of(topic) if in_process else f"eu.{topic}"
    create_topic(pair.target, copy, 1, **{name.replace(".", "_"): value for name, value in TOPIC.items()})
    return CompactedCopy(pair.source, pair.target, topic, copy, int(time.time() * 1000) - batches * STEP_MS)


def configuration(folder: Path, pair: LabPair, *copies: CompactedCopy, flow: str = "") -> Path:
    """The target topics keep configs that their sources do not have."""
    topics = "|".join(copied.topic for copied in copies)
    unsynced = "sync = { configs = false }"
    return conf(folder, pair.source, pair.target, topics, flow=flow or unique("compacted"), flow_more=unsynced)


def cleanable(count: int) -> set[int]:
    """Of this many updates, those that a newer one supersedes which is not in the last segment."""
    return set(range(count - KEYS - 1))


def updates(first: int, end: int) -> list[Pair]:
    """Values of a few keys, in turn."""
    return [Pair(b"k%d" % (number % KEYS), b"%d" % number) for number in range(first, end)]


def assert_later_ones_follow(daemon: Daemon, *copies: tuple[CompactedCopy, int]) -> None:
    """Three more records of the source are all that follows the former ends of the target topics."""
    for copied, _ in copies:
        copied.write(LATER)
    until_copied(daemon, *(copied for copied, _ in copies))
    for copied, end in copies:
        assert copied.from_offset(end) == LATER
        assert copied.end == end + len(LATER)


@contextmanager
def superseded(path: Path, *cases: tuple[CompactedCopy, Sequence[int]]) -> Generator[Daemon]:
    """A daemon has copied six records, another client has written newer records of these keys, and the cleaner has
    removed the older ones."""
    for copied, _ in cases:
        copied.write(OLD)
    with Daemon(path) as daemon:
        until_copied(daemon, *(copied for copied, _ in cases))
        for copied, keys in cases:
            copied.write_to_copy(pairs("newer", *keys))
        for copied, keys in cases:
            copied.until_cleaned({key - 1 for key in keys}, copied.roll)
        yield daemon


@pytest.mark.parametrize("change", ["restart", "leader", "upgrade"])
def test_what_another_writer_superseded_stays_superseded(pair: LabPair, tmp_path: Path, change: str) -> None:
    """The cleaner removes batches between those that are left, or the last ones of the lane."""
    between, last = compacted(pair, 6), compacted(pair, 6)
    path = configuration(tmp_path, pair, between, last)
    cases = ((between, (2, 3, 5, 6)), (last, (4, 5, 6)))
    with superseded(path, *cases) as daemon:
        copies = [(copied, copied.end) for copied, _ in cases]
        if change == "leader":
            for copied, _ in copies:
                copied.elect()
        elif change == "restart":
            assert daemon.stop() == 0
        options = ["--upgrade"] if change == "upgrade" else []
        with daemon if change == "leader" else Daemon(path, *options) as successor:
            if change == "upgrade":
                assert daemon.process.wait(2 * SECONDS) == 0, daemon.output
            assert_later_ones_follow(successor, *copies)
            assert successor.stop() == 0
    for copied, keys in cases:
        found = copied.newest()
        del found[ROLLED]
        assert found == dict(OLD) | dict(pairs("newer", *keys)) | dict(LATER)


def test_a_single_writer_after_a_crash_and_a_leader_change(pair: LabPair, tmp_path: Path) -> None:
    """The lane's mark is older than what the cleaner has removed after it."""
    copied, flow = compacted(pair, 40), unique("single")
    path = configuration(tmp_path, pair, copied, flow=flow)
    copied.write(updates(0, 15))
    with Daemon(path) as daemon:
        until_copied(daemon, copied)
        daemon.until(lambda: progress_rows(pair.target, flow, least=15))
        saved_rows = progress_rows(pair.target, flow, least=15)
        copied.write(updates(15, 40))
        until_copied(daemon, copied)
        daemon.kill()
    restore_progress_rows(pair.target, flow, saved_rows)
    copied.until_cleaned(cleanable(40))
    with Daemon(path) as daemon:
        until_copied(daemon, copied)
        assert (copied.end, copied.from_offset(40)) == (40, [])
        copied.elect()
        assert_later_ones_follow(daemon, (copied, 40))
        assert daemon.stop() == 0
    assert copied.newest() == copied.newest(pair.source)


async def test_only_what_an_unclean_election_took_comes_again(pair: LabPair) -> None:
    """And it does not overwrite what another client has written since; there the lane may halt instead."""
    # The ledger is on the brokers that go away, and no other daemon wants the lease meanwhile.
    async with mirror(pair.source, pair.target, lease_ttl_ms=300_000) as flow:
        copied, passed = [await in_thread(lambda: compacted(pair, 30, in_process=True)) for _ in range(2)]
        flow.topics += [copied.topic, passed.topic]
        for each in (copied, passed):
            await in_thread(each.write, updates(0, 30))
        replicator = await flow.copying()
        await flow.caught_up(replicator)
        for each in (copied, passed):
            await in_thread(each.until_cleaned, cleanable(30))
        lost = updates(30, 32)
        epochs: list[int] = []

        async def lose() -> None:
            for each in (copied, passed):
                await in_thread(each.write, lost)
                await until_ends(flow.target, each.copy, {0: 32})
                epochs.append(await each.epoch_at(30))
            await flow.caught_up(replicator)  # they are acknowledged, and the lanes know that
            left = [lane.lane for lane in await flow.lanes() if lane.source_topic == passed.topic]
            assert await replicator.release(left, SECONDS) == dict.fromkeys(left, True)

        async with copied.partition() as partition:
            await partition.elect_unclean(lose)
        async with passed.partition():  # it has its leader, too
            await in_thread(passed.write_to_copy, [NEWER])
        successor = await flow.replicator()
        await successor.assign([lane for lane in await flow.lanes("left") if lane.source_topic == passed.topic])
        for each in (copied, passed):
            await in_thread(each.write, LATER)
        await settled(flow, replicator, successor)
        for each, epoch in zip((copied, passed), epochs, strict=True):
            assert await each.epoch_at(30) > epoch, "the election took nothing away"
        assert await in_thread(copied.from_offset, 30) == lost + LATER
        assert await in_thread(lambda: copied.end) == 35
        assert await in_thread(copied.newest) == await in_thread(copied.newest, flow.source)
        (report,) = successor.report().lanes
        newest = await in_thread(passed.newest)
        if report.phase == "halted":
            assert report.note
            assert newest[NEWER.key] == NEWER.value
        else:
            assert newest == await in_thread(passed.newest, flow.source) | dict([NEWER])


async def settled(flow: Mirror, *replicators: Replicator) -> None:
    """Each of their lanes has copied all that its source holds, or has halted."""
    wanted = {topic: (await in_thread(ends, flow.source, topic))[0] for topic in flow.topics}

    def is_settled() -> bool:
        lanes = [lane for replicator in replicators for lane in replicator.report().lanes]
        reached = {
            lane.source_topic
            for lane in lanes
            if lane.phase == "halted"
            or (lane.phase == "copying" and lane.source_end >= 0 and lane.source_offset >= wanted[lane.source_topic])
        }
        return reached == set(wanted)

    await until(is_settled)


def test_an_audit_distinguishes_another_writers_value_from_a_stale_one(pair: LabPair, tmp_path: Path) -> None:
    copied = compacted(pair, 6)
    path = configuration(tmp_path, pair, copied)
    with superseded(path, (copied, (2, 3, 5, 6))) as daemon:
        assert daemon.stop() == 0
    with Daemon(path) as daemon:
        until_copied(daemon, copied)
        assert daemon.stop() == 0
    code, found = audit(path)
    (row,) = found["partitions"]
    assert (code, found["differences"], row["explained"]) == (0, [], {"target-compaction": 4})
    copied.write_to_copy([Pair(b"k4", b"older 4")])
    end = copied.end
    with Daemon(path) as daemon:
        assert_later_ones_follow(daemon, (copied, end))
        assert daemon.stop() == 0
    code, found = audit(path)
    differences = [each["difference"] for each in found["differences"]]
    assert (code, {each["kind"] for each in differences}) == (3, {"foreign"})
    assert any(each["target"] <= end - 1 < each["target"] + each["length"] for each in differences)


def audit(path: Path) -> tuple[int, Any]:
    """The exit code and the document."""
    answer = mirrord("audit", path, "--level", "records", "--again", "--json")
    return answer.returncode, audited(answer.stdout)


def test_a_rebuilt_ledger_appends_no_cleaned_record_again(pair: LabPair, tmp_path: Path) -> None:
    """A partition whose last copied records have been cleaned may be refused; then nothing is appended to it."""
    single, shared, last, flow = compacted(pair, 30), compacted(pair, 6), compacted(pair, 6), unique("rebuilt")
    path = configuration(tmp_path, pair, single, shared, last, flow=flow)
    single.write(updates(0, 30))
    cases = ((shared, (2, 3, 5)), (last, (4, 5, 6)))
    with superseded(path, *cases) as daemon:
        until_copied(daemon, single)
        single.until_cleaned(cleanable(30))
        assert daemon.stop() == 0
    kept = {copied.copy: copied.end for copied in (single, shared, last)}
    lose_ledger(pair.target, flow)
    done = mirrord("rebuild", path, "--apply", "--json")
    outcomes = {each["topic"]: each["outcome"] for each in json.loads(done.stdout)["partitions"]}
    assert (outcomes[single.topic], outcomes[shared.topic]) == ("rebuilt", "rebuilt"), done.stdout + done.stderr
    is_rebuilt = outcomes[last.topic] == "rebuilt"
    assert (done.returncode, outcomes[last.topic]) in {(0, "rebuilt"), (3, "refused")}
    rebuilt = [copied for copied in (single, shared, last) if is_rebuilt or copied is not last]
    with Daemon(path) as daemon:
        if not is_rebuilt:
            last.write(LATER)
        assert_later_ones_follow(daemon, *((copied, kept[copied.copy]) for copied in rebuilt))
        assert daemon.stop() == 0
    assert single.newest() == single.newest(pair.source)
    for copied, keys in cases:
        found = copied.newest()
        del found[ROLLED]
        assert found == dict(OLD) | dict(pairs("newer", *keys)) | dict(LATER if copied in rebuilt else ())
