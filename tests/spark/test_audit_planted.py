"""Planted losses: a topic without lanes, a false verdict, a lost segment, a stale key. An audit reports them all."""

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest

from mirrord.audit import plan
from mirrord.cli.main import main
from mirrord.lab.cluster import Cluster
from mirrord.ledger.facts.core import SourceRun, Verdict
from mirrord.model.runs import Run
from tests.fixtures.lab import LabPair
from tests.fixtures.log_files import LogFile, lay_down
from tests.fixtures.mirror import (
    PATIENT,
    SECONDS,
    Mirror,
    Written,
    copy_of,
    create_topic,
    ids,
    mirror,
    until,
    write_batches,
)
from tests.fixtures.mirror import ends as log_ends
from tests.spark.test_audit import configuration

LARGE = 700_000
"""Two such records do not fit into a segment of one MiB."""


def records(*pairs: tuple[bytes, bytes]) -> list[Written]:
    return [Written(key, value, (), 0) for key, value in pairs]


async def lose_segment(cluster: Cluster, topic: str, base: int) -> None:
    """Remove a file of the log before the broker starts again."""
    before = await asyncio.to_thread(log_ends, cluster, topic)
    folder = Path(cluster.folder) / "node-1" / "data" / f"{topic}-0"
    await asyncio.to_thread(cluster.kill)
    lost = list(folder.glob(f"{base:020}.*"))
    assert any(path.suffix == ".log" for path in lost), list(folder.iterdir())
    for path in lost:
        path.unlink()
    await asyncio.to_thread(cluster.restart)
    deadline = asyncio.get_running_loop().time() + SECONDS
    while await asyncio.to_thread(log_ends, cluster, topic) != before:
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.05)


async def copied(flow: Mirror) -> None:
    """Copy everything, and release the lanes."""
    replicator = await flow.copying()
    await flow.caught_up(replicator)
    lanes = ids(await flow.lanes())
    assert await replicator.release(lanes, SECONDS) == dict.fromkeys(lanes, True)


async def plant(flow: Mirror, expired: str, keyed: str, holed: str, seed: int) -> None:
    chance = random.Random(seed)
    await write_batches(flow.source, expired, records(*((b"k", b"%d" % at) for at in range(10))))
    for pair in ((b"one", b"old"), (b"one", b"new"), (b"two", b"new")):
        await write_batches(flow.source, keyed, records(pair))
    for _ in range(4):
        await write_batches(flow.source, holed, records((b"k", chance.randbytes(LARGE))))
    await lose_segment(flow.source, holed, 1)
    await copied(flow)
    # Records that were not deleted, under a verdict that says they were.
    await write_batches(flow.source, expired, records(*((b"k", b"%d" % at) for at in range(10, 20))))
    lane = next(each for each in flow.state.lanes.values() if each.source_topic == expired)
    false = SourceRun(lane.key.id, lane.grant, (Run(10, 15),), (Verdict(10, 15, "expired"),))
    await flow.store.append(flow.state.lease_epoch, [false])
    await until(lambda: lane.source_runs.offset_of(10) == 15)
    # The target lacks the newest record of a key, as if the cleaner had mistaken the older one for it.
    stored = [bytes(memoryview(each.buffer)[each.start : each.end]) for each in (await flow.batches(keyed))[1]]
    await lay_down(flow.target, copy_of(keyed), {0: LogFile(stored[0] + stored[2], 3)})


@pytest.mark.usefixtures("spark")
async def test_an_audit_reports_every_loss_that_was_planted(
    lab_pair: LabPair, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(plan, "BEGIN_S", 0.1)

    async def run(verb: str, *options: str) -> tuple[int, Any]:
        code = await asyncio.to_thread(main, [verb, conf, "--json", *options])
        lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith('{"')]
        return code, json.loads(next(line for line in lines if verb == "gaps" or '"level"' in line))

    async with mirror(lab_pair.source, lab_pair.target, **PATIENT) as flow:
        expired, holed = flow.topic(), flow.topic(segment_bytes="1048576")
        keyed = flow.topic(cleanup_policy="compact", target_configs={"cleanup.policy": "compact"})
        await plant(flow, expired, keyed, holed, seed)
        never = create_topic(flow.source, f"never-{expired}", 2)
        await write_batches(flow.source, never, records((b"k", b"1"), (b"k", b"2")))
        copied_topics = list(flow.topics)
        flow.topics.append(never)
        conf = configuration(flow, tmp_path)
        flow.topics[:] = copied_topics
        gaps = await run("gaps")
        by_ledger, by_batches = await run("audit", "--level", "ledger"), await run("audit")

    lost = [(each["topic"], each["start"], each["end"]) for each in gaps[1]["gaps"] if each["reason"] == "unexplained"]
    assert (gaps[0], lost) == (3, [(holed, 1, 2)])
    planted = {
        (expired, 0, "missing", 10, None, 5),
        (keyed, 0, "stale", 1, 0, 1),
        (never, 0, "not-copied", 0, None, 2),
    }
    without_keys = {each for each in planted if each[0] != keyed}
    names = ("kind", "source", "target", "length")
    for (code, document), expected in ((by_batches, planted), (by_ledger, without_keys)):
        assert code == 3
        found = [(each["topic"], each["partition"], each["difference"]) for each in document["differences"]]
        assert {(topic, at, *(each[name] for name in names)) for topic, at, each in found} == expected
        rows = {(each["topic"], each["partition"]): each for each in document["partitions"]}
        assert rows[holed, 0]["explained"]["unexplained"] == 1
        assert rows[never, 1]["skipped"] == "there is nothing to copy yet"
