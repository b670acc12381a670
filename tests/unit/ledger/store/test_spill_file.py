import random
from pathlib import Path
from typing import Any

import pytest
import structlog

from mirrord.config.limits import LimitsConfig
from mirrord.config.loader import load_text
from mirrord.config.schema import FlowConfig
from mirrord.groups.group_follower import GroupSync
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.ledger.store.memory_log import MemoryLedger, MemoryLog
from mirrord.ledger.store.spill_file import UNIT_BYTES, AtticLost, FileAttic, run_memory
from mirrord.model.names import Alias, ClusterId
from mirrord.model.run_memory import BLOCKS_BYTES, FEWEST_RUNS, PIECE_RUNS, RunMemory
from mirrord.model.runs import RUN_BYTES, Runs
from mirrord.replication.host.replicator import Replicator
from mirrord.replication.lane.assignment import FlowSetup
from tests.fixtures.attic import MemoryAttic, no_room


def grow(runs: Runs, chance: random.Random, count: int) -> None:
    """Transactions of any length, some of them aborted."""
    last = runs.last
    ordinal, offset = (last.ordinal + 1, last.offset + 2) if last else (0, 0)
    for _ in range(count):
        runs.add(ordinal, offset)
        length = chance.randrange(1, 200)
        ordinal, offset = ordinal + length, offset + length + chance.randrange(1, 200)


def test_what_was_put_away_comes_back(tmp_path: Path, seed: int) -> None:
    chance, attic = random.Random(seed), FileAttic(str(tmp_path))
    held: dict[int, bytes] = {}
    for _ in range(500):
        if held and chance.random() < 0.5:
            number = chance.choice(list(held))
            assert attic.get(number) == held.pop(number)
            attic.free(number)
        data = chance.randbytes(chance.choice((0, 1, UNIT_BYTES - 4, UNIT_BYTES, 3 * UNIT_BYTES)))
        number = attic.put(data)
        assert number is not None
        held[number] = data
    assert {number: attic.get(number) for number in held} == held
    assert not list(tmp_path.iterdir())  # it has no name, so nothing has to be removed


def test_space_is_used_again(tmp_path: Path) -> None:
    attic = FileAttic(str(tmp_path))
    numbers = [attic.put(bytes(10_000)) or 0 for _ in range(10)]
    size = attic.file_bytes
    for number in numbers[:5]:
        attic.free(number)
    numbers[:5] = [attic.put(bytes(10_001)) or 0 for _ in range(5)]
    assert attic.file_bytes == size
    for number in numbers:
        attic.free(number)
    assert attic.file_bytes == 0


def test_damage_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attic = FileAttic(str(tmp_path))
    number = attic.put(b"runs")
    assert number is not None
    monkeypatch.setattr("os.pread", lambda *_: b"\0\0\0\0ruin")
    with pytest.raises(AtticLost):
        attic.get(number)


def test_a_disk_that_takes_nothing_costs_memory_and_no_run(tmp_path: Path, seed: int) -> None:
    memory = RunMemory(0, FileAttic(str(tmp_path / "missing")))
    runs, plain = Runs(memory=memory), Runs()
    with structlog.testing.capture_logs() as logs:
        for each in (runs, plain):
            grow(each, random.Random(seed), 10_000)
    assert runs == plain
    assert len(runs.pieces) > 3
    assert [line["event"] for line in logs] == ["older_runs_stay_in_memory"]


@pytest.mark.parametrize("lanes", [1, 20, 120])
def test_the_limit_holds_for_any_number_of_partitions(seed: int, lanes: int) -> None:
    chance, attic, limit = random.Random(seed), MemoryAttic(), BLOCKS_BYTES + (2 << 20)
    memory = RunMemory(limit, attic)
    all_runs = [Runs(memory=memory) for _ in range(2 * lanes)]
    for _ in range(6):
        for runs in all_runs[::2]:
            grow(runs, chance, 100_000 // lanes)
    for runs in all_runs[1::2]:
        grow(runs, chance, 3 * FEWEST_RUNS)
    newest = sum(len(runs) - sum(piece.count for piece in runs.pieces) for runs in all_runs)
    assert newest * RUN_BYTES + memory.packed_bytes + BLOCKS_BYTES <= limit
    assert attic.held
    # Small pieces become large ones, so the index does not grow with them.
    assert max(len(runs.pieces) for runs in all_runs) <= 600_000 // lanes // PIECE_RUNS + 7


def test_what_is_dropped_leaves_the_attic(seed: int) -> None:
    attic = MemoryAttic()
    memory = no_room(attic)
    runs, others = Runs(memory=memory), Runs(memory=memory)
    grow(runs, random.Random(seed), 50_000)
    assert len(attic.held) >= len(runs.pieces) - 1 > 4
    last = runs.last
    assert last is not None
    runs.forget_below(last.ordinal)
    grow(others, random.Random(seed), 3 * PIECE_RUNS)
    # The runs that are kept unpacked may hold the piece that was read last.
    assert len(attic.held) <= len(others.pieces) + 1


def test_the_piece_that_was_looked_into_last_stays(seed: int) -> None:
    attic = MemoryAttic()
    runs = Runs(memory=no_room(attic))
    grow(runs, random.Random(seed), 50_000)
    attic.reads = 0
    ordinals = [run.ordinal for run in list(runs)[:1000]]
    attic.reads = 0
    for ordinal in ordinals:
        runs.offset_of(ordinal)
    assert attic.reads == 1


def test_every_part_of_a_daemon_keeps_to_the_limit() -> None:
    config = load_text(
        '[clusters.eu]\nbootstrap = "eu:1"\n[clusters.us]\nbootstrap = "us:1"\n[[flows]]\nname = "limited"\n'
        'from = "eu"\nto = "us"\ntopics = [".*"]\nlimits = { map_bytes = "8MiB" }\n',
        "conf.toml",
    )
    (flow,), clusters = config.flows, config.clusters
    setup = FlowSetup(flow, clusters["eu"], clusters["us"], config.runtime, 1, ClusterId("eu"), ClusterId("us"))
    topics = MemoryLog(MemoryLedger())
    parts: list[Any] = [Replicator("r", setup, topics), GroupSync("g", setup, topics)]
    stores = [ClusterAccess(config).ledger(flow), *(part._store for part in parts)]
    assert [store.state.memory for store in stores] == [run_memory(flow)] * 3


def test_readers_of_one_flow_share_its_room() -> None:
    flow = FlowConfig("eu-us-attic", Alias("eu"), Alias("us"), (".*",), limits=LimitsConfig(map_bytes=8 << 20))
    memory = run_memory(flow)
    assert run_memory(flow) is memory
    assert run_memory(FlowConfig("another", Alias("eu"), Alias("us"), (".*",))) is not memory
    many = [Runs(memory=memory) for _ in range(1000)]
    assert memory.piece_runs == FEWEST_RUNS
    assert all(not runs for runs in many)
