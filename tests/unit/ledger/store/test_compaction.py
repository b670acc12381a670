"""`mirrord compact` without Spark and brokers: killed at every step, superseded, and read from a folder that fails."""

import asyncio
import random
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import unquote

import msgspec
import pytest
from structlog.testing import capture_logs

from mirrord.ledger.codec import encode_entry, encode_state
from mirrord.ledger.facts.archive import CompactionBegan
from mirrord.ledger.facts.core import AnyFact, LaneTaken, LeaseReleased, LeaseTaken, Progress, SourceRun, TargetRun
from mirrord.ledger.offset_map import CopiedPosition, LaneMap, Translation
from mirrord.ledger.state_topic_records import state_key
from mirrord.ledger.store import compaction, run_archive
from mirrord.ledger.store.compaction import Compacted, FileWork, RunSelection, Spread, compact, write
from mirrord.ledger.store.log_interface import StateRow
from mirrord.ledger.store.memory_log import MemoryLedger, MemoryLog
from mirrord.ledger.store.run_archive import ArchiveFile, FolderArchive, generations
from mirrord.ledger.store.store import LedgerStore
from mirrord.model.archived_runs import ArchivedPart, ArchiveLost
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import LaneId
from mirrord.model.run_memory import RunMemory
from mirrord.model.runs import Run
from mirrord.runtime.clock import SystemClock
from tests.fixtures.attic import scarce
from tests.fixtures.ledger import FLOW, HOLDER, entry, lane_id, opened

RUNS, LANES = 80, 2
WANTED = RunSelection(least=16)
MOVED_AT_LEAST = 2 * LANES * 16


class Killed(BaseException):
    """The process ends here, and cleans up nothing."""


class Fuse:
    """Kills at one of the points that it passes."""

    def __init__(self, at: int | None = None) -> None:
        self._at = at
        self.passed = 0
        self.burnt = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def burn(self) -> None:
        self.passed += 1
        if self._at is not None and self.passed >= self._at:
            self._loop.call_soon_threadsafe(self.burnt.set)
            raise Killed


class FusedLog(MemoryLog):
    """Each write may be the last, before or after it takes effect."""

    def __init__(self, ledger: MemoryLedger, fuse: Fuse) -> None:
        super().__init__(ledger)
        self._fuse = fuse

    async def append(self, values: Sequence[bytes]) -> Sequence[int]:
        self._fuse.burn()
        offsets = await super().append(values)
        self._fuse.burn()
        return offsets

    async def save(self, rows: Sequence[StateRow]) -> None:
        self._fuse.burn()
        await super().save(rows)
        self._fuse.burn()

    async def delete_below(self, offset: int) -> None:
        self._fuse.burn()
        await super().delete_below(offset)
        self._fuse.burn()


@pytest.fixture(autouse=True)
def small_and_patient(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    monkeypatch.setattr(run_archive, "READ_S", 60.0)
    monkeypatch.setattr(run_archive, "_sync", lambda _path: None)
    monkeypatch.setattr(compaction, "PART_RUNS", 20)
    monkeypatch.setattr(compaction, "FILE_PARTS", 2)
    monkeypatch.setattr(compaction, "FILES_AT_ONCE", 2)
    # A killed process logs what it held, which takes longer than all the rest.
    with scarce(fewest=4, most=16, block=3), capture_logs():
        yield


def filled(*, lanes: int = LANES, released: bool = True, topic: str = "orders") -> MemoryLedger:
    """A ledger whose lanes have gaps on both sides; some of its runs go backwards."""
    chance = random.Random(5)
    appended: list[tuple[AnyFact, ...]] = [(LeaseTaken(1, HOLDER, 6000),)]
    progress: list[Progress] = []
    for number in range(lanes):
        lane = lane_id(number)
        appended.append((msgspec.structs.replace(opened(number), source_topic=topic), LaneTaken(lane, 1, "r")))
        ordinal, source, target = 0, 100, 7
        for step in range(RUNS):
            appended.append((SourceRun(lane, 1, (Run(ordinal, source),)), TargetRun(lane, 1, ordinal, target, 0)))
            length = chance.randrange(1, 9)
            ordinal, source, target = ordinal + length, source + length + 1, target + length + 2
            source -= 5 if step % 40 == 39 else 0
        progress.append(Progress(lane, 1, 1, ordinal, target, 0, source, 0, 0, 0, protected=True, state="copying"))
    if released:
        appended.append((LeaseReleased(1),))
    entries = [encode_entry(entry(FLOW, epoch=0)), *(encode_entry(entry(*facts)) for facts in appended)]
    ledger = MemoryLedger(entries=list(entries))
    ledger.rows += [StateRow(state_key(record), encode_state(record)) for record in progress]
    return ledger


@asynccontextmanager
async def store_of(ledger: MemoryLedger, folder: Path, fuse: Fuse | None = None) -> AsyncGenerator[LedgerStore]:
    memory = RunMemory(archive=FolderArchive(folder, 60.0))
    log = MemoryLog(ledger) if fuse is None else FusedLog(ledger, fuse)
    store = LedgerStore(log, SystemClock(), memory=memory, deadline_seconds=60.0)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def hands(fuse: Fuse) -> Spread:
    def spread(works: Sequence[FileWork]) -> list[ArchiveFile]:
        files: list[ArchiveFile] = []
        for work in works:
            fuse.burn()
            # As between the processes of Spark.
            sent = msgspec.msgpack.decode(msgspec.msgpack.encode(work), type=FileWork)
            files.append(write(sent))
        fuse.burn()
        return files

    return spread


def silent(_done: int, _every: int) -> None:
    """No progress is shown."""


async def run(ledger: MemoryLedger, folder: Path, fuse: Fuse | None = None) -> Compacted:
    fuse = fuse or Fuse()
    async with store_of(ledger, folder, fuse) as store:
        work = asyncio.create_task(compact(store, folder, WANTED, hands(fuse), silent))
        burnt = asyncio.create_task(fuse.burnt.wait())
        await asyncio.wait((work, burnt), return_when=asyncio.FIRST_COMPLETED)
        burnt.cancel()
        if fuse.burnt.is_set():
            work.cancel()
        await asyncio.wait((work,))
        if fuse.burnt.is_set():
            raise Killed
        return work.result()


MapAnswers = dict[LaneId, tuple[list[Run], list[Run], list[Translation], list[Translation]]]


async def answers_of(ledger: MemoryLedger, folder: Path, every: int = 3) -> MapAnswers:
    """Everything that a fresh reader knows about the map."""
    found: MapAnswers = {}
    async with store_of(ledger, folder) as store:
        for lane_name, lane in store.state.lanes.items():
            record = store.state.progress[lane_name]
            lane_map = LaneMap(lane, CopiedPosition.by(record))
            found[lane_name] = (
                list(lane.source_runs),
                list(lane.target_runs),
                [lane_map.to_target(offset) for offset in range(90, record.source_offset + 2, every)],
                [lane_map.to_source(offset) for offset in range(0, record.target_offset + 2, every)],
            )
    return found


def held_bytes(ledger: MemoryLedger) -> int:
    """The size of the state topic once the broker has compacted it."""
    ledger.compact()
    return sum(len(row.value or b"") for row in ledger.rows if row is not None)


async def trimmed_bytes(lanes: int = LANES) -> int:
    """The same without a compaction of the map."""
    ledger = filled(lanes=lanes)
    async with store_of(ledger, Path()) as store:
        await store.trim(0)
    return held_bytes(ledger)


async def test_killed_at_every_step_and_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, size = await answers_of(filled(lanes=1), tmp_path, 29), await trimmed_bytes(1)
    points = 0
    while True:
        points += 1
        ledger, folder, fuse = filled(lanes=1), tmp_path / str(points), Fuse(points)
        with monkeypatch.context() as patched:
            patched.setattr(run_archive, "_sync", lambda _path, fuse=fuse: fuse.burn())
            patched.setattr(compaction.shutil, "rmtree", lambda *_, fuse=fuse, **__: fuse.burn())
            try:
                await run(ledger, folder, fuse)
                break
            except Killed:
                pass
        assert await answers_of(ledger, folder, 29) == before, f"killed at point {points}"
        done = await run(ledger, folder)
        assert done.trimmed
        assert await answers_of(ledger, folder, 29) == before, f"run again after it was killed at point {points}"
        # Nothing is left of an unfinished run, and nothing moves twice.
        (left,) = generations(folder).values()
        assert (left / run_archive.MANIFEST).is_file()
        assert not list(left.rglob("*.unfinished"))
        assert held_bytes(ledger) < size / 2
        assert (await run(ledger, folder)).generation is None
    assert points > 20, "every append, save, deletion and file is such a point"


async def test_what_a_whole_run_moves(tmp_path: Path) -> None:
    ledger = filled()
    before, size = await answers_of(ledger, tmp_path), await trimmed_bytes()
    done = await run(ledger, tmp_path)
    assert (done.generation, done.lanes, done.left, done.trimmed) == (1, LANES, 0, True)
    assert done.runs >= MOVED_AT_LEAST
    assert await answers_of(ledger, tmp_path) == before
    assert held_bytes(ledger) < size / 2
    manifest = run_archive.read_manifest(generations(tmp_path)[1])
    assert sum(part.count for file in manifest.files for part in file.parts) == done.runs
    assert {Path(file.path).parts[:2] for file in manifest.files} == {("topic=orders", "partitions=000000-000063")}
    assert done.files == len(manifest.files) > 2 * LANES
    async with store_of(ledger, tmp_path) as store:
        pieces = store.state.lanes[lane_id(0)].source_runs.pieces
        assert sum(piece.archived is not None for piece in pieces) > 1


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("topic", ["x/../../../../outside", "/outside", "..", "a\0b", "é%2F"])
async def test_no_name_in_the_ledger_leads_out_of_the_folder(tmp_path: Path, topic: str) -> None:
    """Whoever can write to the topics of the ledger chooses the names in it."""
    ledger, folder = filled(topic=topic), tmp_path / "maps" / "eu-us"
    before = await answers_of(ledger, folder)
    done = await run(ledger, folder)
    assert (done.lanes, done.left) == (LANES, 0)
    assert await answers_of(ledger, folder) == before
    assert names_in(tmp_path) == ["maps"]
    assert names_in(folder) == ["generation=000001"]
    assert [unquote(name) for name in names_in(folder / "generation=000001")] == ["_manifest.json", f"topic={topic}"]


async def test_the_holder_of_the_lease_trims(tmp_path: Path) -> None:
    ledger = filled(released=False)
    before = await answers_of(ledger, tmp_path)
    async with store_of(ledger, tmp_path) as holder:
        await holder.trim(0)
        assert not holder.is_long
        size = held_bytes(ledger)
        assert not (await run(ledger, tmp_path)).trimmed
        await holder.read_to_end()
        assert holder.is_long, "so it trims as soon as it renews its lease"
        await holder.trim(0)
        assert not holder.is_long
    assert held_bytes(ledger) < size / 1.5
    assert await answers_of(ledger, tmp_path) == before


async def test_the_compaction_that_began_last_is_the_one_that_moves(tmp_path: Path) -> None:
    ledger = filled()
    before = await answers_of(ledger, tmp_path)
    async with store_of(ledger, tmp_path) as store:
        await store.append(1, [CompactionBegan(1, 0)])

        def begin_again(works: Sequence[FileWork]) -> list[ArchiveFile]:
            ledger.entries.append(encode_entry(entry(CompactionBegan(7, 0))))
            return [write(work) for work in works]

        with pytest.raises(EnvironmentFault, match="another compaction of eu-us has begun in the meantime"):
            await compact(store, tmp_path, WANTED, begin_again, silent)
    assert await answers_of(ledger, tmp_path) == before
    assert (await run(ledger, tmp_path)).generation == 8
    assert list(generations(tmp_path)) == [8], "what the other one left is removed"
    assert await answers_of(ledger, tmp_path) == before


async def test_a_map_that_is_rebuilt_meanwhile_stays(tmp_path: Path) -> None:
    ledger = filled(released=False)

    def retold(works: Sequence[FileWork]) -> list[ArchiveFile]:
        ledger.entries.append(encode_entry(entry(TargetRun(lane_id(0), 1, 20, 5_000, 0))))
        return [write(work) for work in works]

    async with store_of(ledger, tmp_path) as store:
        done = await compact(store, tmp_path, WANTED, retold, silent)
        assert (done.lanes, done.left) == (LANES - 1, 1)
        runs = store.state.lanes[lane_id(0)].target_runs
        assert (runs.last, [piece.archived for piece in runs.pieces]) == (Run(20, 5_000), [None] * len(runs.pieces))


async def test_a_folder_of_a_ledger_that_was_lost(tmp_path: Path) -> None:
    """Its generations remain, and numbers continue after them."""
    await run(filled(), tmp_path)
    other = filled()
    other.topic_id = type(other.topic_id)("another-ledger")
    before = await answers_of(other, tmp_path)
    assert (await run(other, tmp_path)).generation == 2
    assert sorted(generations(tmp_path)) == [1, 2]
    assert await answers_of(other, tmp_path) == before


async def archived_part(ledger: MemoryLedger, folder: Path) -> ArchivedPart:
    async with store_of(ledger, folder) as store:
        pieces = store.state.lanes[lane_id(1)].source_runs.pieces
        (first, *_) = [piece.archived for piece in pieces if piece.archived is not None]
    return ArchivedPart("orders", lane_id(1), "source", first)


Harm = Callable[[Path], object]


def mix_up(generation: Path) -> None:
    """Replace intact files by others."""
    *others, last = sorted(generation.rglob("*.parquet"))
    for path in others:
        path.write_bytes(last.read_bytes())


@pytest.mark.parametrize(
    ("harm", "line"),
    [
        (lambda generation: (generation / "_manifest.json").unlink(), "cannot be read"),
        (lambda generation: (generation / "_manifest.json").write_text("{"), "cannot be read"),
        (lambda generation: (generation / "_manifest.json").write_text('{"schema": 2}'), "cannot be read"),
        (lambda generation: [path.unlink() for path in generation.rglob("*.parquet")], "cannot be read"),
        (mix_up, "is damaged"),
    ],
)
async def test_a_dataset_that_cannot_be_read(harm: Harm, line: str, tmp_path: Path) -> None:
    ledger = filled()
    await run(ledger, tmp_path)
    part = await archived_part(ledger, tmp_path)
    assert FolderArchive(tmp_path).get(part)
    harm(generations(tmp_path)[1])
    with pytest.raises(ArchiveLost, match=line):
        FolderArchive(tmp_path).get(part)
    async with store_of(ledger, tmp_path) as store:
        assert store.state.lanes[lane_id(1)].source_runs.last is not None, "the ledger is read without it"


async def test_a_folder_that_does_not_answer_holds_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, gate = filled(), threading.Event()
    await run(ledger, tmp_path)
    part = await archived_part(ledger, tmp_path)
    archive = FolderArchive(tmp_path, read_s=0.01)
    read = archive._read

    def hangs(wanted: ArchivedPart) -> object:
        assert gate.wait(60)
        return read(wanted)

    monkeypatch.setattr(archive, "_read", hangs)
    for _ in range(3):
        with pytest.raises(ArchiveLost, match="does not answer"):
            archive.get(part)
    gate.set()
    deadline = asyncio.get_running_loop().time() + 60
    while True:
        try:
            assert archive.get(part) == FolderArchive(tmp_path, 60.0).get(part)
            break
        except ArchiveLost:
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.01)
