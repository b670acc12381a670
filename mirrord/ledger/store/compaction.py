"""Moves older runs of a flow's offset map from the ledger to a dataset of Parquet files (`mirrord compact`). After a
crash, the compaction can simply be run again.

1. `CompactionBegan` is recorded. From then on, no earlier compaction can move runs, and the state keeps track of runs
   that are recorded again.
2. The runs are written to a new folder of the dataset, called a generation, and read back. The manifest, which lists
   the files, is written last and makes the generation complete.
3. `MapCompacted` is recorded for each lane. Until then, no process needs the generation. From then on, all processes
   read the moved runs from it.
4. The next snapshot of the ledger no longer contains the moved runs. The lease holder writes it when it trims the
   ledger. If the lease has been released, this compaction trims the ledger itself.

The next compaction completes or removes the remains of an interrupted one.
"""

import asyncio
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import structlog

from mirrord.ledger.compaction_plan import PART_RUNS, Part, columns_checksum, parts, unpacked
from mirrord.ledger.facts.archive import CompactionBegan, MapCompacted
from mirrord.ledger.state import FlowState
from mirrord.ledger.store.run_archive import (
    SCHEMA,
    ArchiveFile,
    Manifest,
    complete_generation,
    file_path,
    generation_folder,
    generation_numbers,
    remove_unused_generations,
    write_file,
)
from mirrord.ledger.store.store import LedgerStore
from mirrord.model.archived_runs import ArchivedRuns
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import LaneId, Side
from mirrord.runtime.clock import SystemClock

FILE_PARTS = 16
"""Maximum number of parts in one file, which corresponds to a million runs. One task writes one file."""
FILES_AT_ONCE = 32
"""Number of files that are written at the same time. Their packed runs are in memory at the same time and take a few
megabytes."""
PARTS_PER_ENTRY = 10_000
"""Maximum number of parts in one entry of the ledger."""

log = structlog.get_logger()


class PartWork(msgspec.Struct, frozen=True):
    """Runs that will form one row group of a Parquet file."""

    runs: ArchivedRuns
    """The description of the runs, without their checksum."""
    pieces: tuple[bytes, ...]


class FileWork(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a task has to write."""

    folder: str
    """The path of the folder of the generation."""
    topic: str
    partition: int
    lane: LaneId
    side: Side
    parts: tuple[PartWork, ...]


Spread = Callable[[Sequence[FileWork]], list[ArchiveFile]]
"""A function that writes the given files and returns their descriptions. It may distribute the files over several
workers."""
OnRunsWritten = Callable[[int, int], None]
"""A callback that receives the number of runs written so far and the total number of runs."""


class RunSelection(msgspec.Struct, frozen=True, kw_only=True):
    """The rules that select the runs for a compaction."""

    topics: tuple[str, ...] = ()
    """Source topics, as regexes that match the whole name. An empty tuple means all topics."""
    least: int = PART_RUNS
    """Minimum number of runs that are worth moving, for the source side or the target side of a partition."""

    def parts(self, state: FlowState) -> list[Part]:
        """Return the runs that can be moved."""
        patterns = [re.compile(pattern) for pattern in self.topics]
        return [
            part
            for part in parts(state, most=max(self.least, PART_RUNS), least=self.least)
            if not patterns or any(pattern.fullmatch(part.topic) for pattern in patterns)
        ]


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a compaction."""

    flow: str
    generation: int | None
    """The number of the generation; None if there were no runs to move."""
    runs: int
    lanes: int
    files: int
    size_bytes: int
    left: int
    """Number of lanes whose runs were recorded again during the compaction. Their runs stay in the ledger until the
    next compaction."""
    trimmed: bool
    """Whether the snapshots of the ledger no longer contain the moved runs, because the ledger was trimmed. If false,
    the lease holder will trim the ledger."""


def write(work: FileWork) -> ArchiveFile:
    """Write one file of a generation, and return its description. Raises EnvironmentFault."""
    path = file_path(work.topic, work.partition, work.side, work.parts[0].runs.first_ordinal, work.lane)
    try:
        columns = [unpacked(iter(part.pieces)) for part in work.parts]
        size = write_file(Path(work.folder) / path, work.topic, work.partition, work.lane, work.side, columns)
    except OSError as error:
        raise EnvironmentFault(f"nothing can be written to {work.folder}: {error.strerror or error}") from None
    except ValueError as error:
        raise EnvironmentFault(f"{path}: {error}") from None
    parts = [
        msgspec.structs.replace(part.runs, checksum=columns_checksum(each))
        for part, each in zip(work.parts, columns, strict=True)
    ]
    return ArchiveFile(
        path=path,
        size_bytes=size,
        topic=work.topic,
        partition=work.partition,
        lane=work.lane,
        side=work.side,
        parts=tuple(parts),
    )


async def compact(
    store: LedgerStore, folder: Path, wanted: RunSelection, spread: Spread, report: OnRunsWritten
) -> Compacted:
    """Compact the flow whose ledger is open in `store`, and write the moved runs to a folder. Return the result.

    Raises EnvironmentFault. Even then, the runs of each lane are either in the ledger or completely in the folder.
    """
    await store.read_to_end()
    flow = store.state.flow
    if not wanted.parts(store.state):
        return Compacted(
            flow=flow, generation=None, runs=0, lanes=0, files=0, size_bytes=0, left=0, trimmed=await _trim(store)
        )
    number = await _begin(store, folder)
    offset, found = store.state.next_offset, wanted.parts(store.state)
    await asyncio.to_thread(remove_unused_generations, folder, number, _used(store.state), store.recorded_end.topic_id)
    target = generation_folder(folder, number)
    try:
        files = await _write(found, target, number, spread, report)
        manifest = Manifest(
            schema=SCHEMA,
            flow=flow,
            ledger=store.recorded_end.topic_id,
            generation=number,
            ledger_offset=offset,
            files=tuple(files),
        )
        await asyncio.to_thread(complete_generation, target, manifest)
    except Exception:
        await asyncio.to_thread(shutil.rmtree, target, ignore_errors=True)
        raise
    facts = list(_facts(files, number))
    recorded = await _record(store, facts)
    if facts and not recorded and store.state.compaction != number:
        raise EnvironmentFault(f"another compaction of {flow} has begun in the meantime, so this one moves nothing")
    lanes = {fact.lane for fact in recorded}
    moved = sum(part.count for fact in recorded for part in (*fact.source, *fact.target))
    log.info("map_compacted", flow=flow, generation=number, runs=moved, lanes=len(lanes))
    return Compacted(
        flow=flow,
        generation=number,
        runs=moved,
        lanes=len(lanes),
        files=len(files),
        size_bytes=sum(each.size_bytes for each in files),
        left=len({fact.lane for fact in facts} - lanes),
        trimmed=await _trim(store),
    )


async def _begin(store: LedgerStore, folder: Path) -> int:
    """Record the beginning of a compaction, and return its number. No other compaction has this number.

    The folder may contain generations of a ledger that was lost, so the number is also higher than the numbers of these
    generations.
    """
    state = store.state
    number = 1 + max([state.compaction, *await asyncio.to_thread(generation_numbers, folder)])
    (bound,) = await store.append(state.lease_epoch, [CompactionBegan(number, SystemClock().wall_ms())])
    if not bound:
        raise EnvironmentFault(f"another compaction of {state.flow} began, or a lease was taken: try again")
    return number


async def _write(
    found: Sequence[Part], target: Path, number: int, spread: Spread, report: OnRunsWritten
) -> list[ArchiveFile]:
    files: list[ArchiveFile] = []
    every, done = sum(part.runs for part in found), 0
    report(done, every)
    groups = list(_groups(found))
    for first in range(0, len(groups), FILES_AT_ONCE):
        works = [_work(group, target, number) for group in groups[first : first + FILES_AT_ONCE]]
        files += await asyncio.to_thread(spread, works)
        done = sum(part.count for each in files for part in each.parts)
        report(done, every)
    return files


def _groups(found: Sequence[Part]) -> Iterator[Sequence[Part]]:
    """Group the parts by file, and yield each group."""
    group: list[Part] = []
    for part in found:
        if group and (len(group) >= FILE_PARTS or (group[0].lane, group[0].side) != (part.lane, part.side)):
            yield group
            group = []
        group.append(part)
    if group:
        yield group


def _work(group: Sequence[Part], target: Path, number: int) -> FileWork:
    first = group[0]
    return FileWork(
        folder=str(target.absolute()),
        topic=first.topic,
        partition=first.partition,
        lane=first.lane,
        side=first.side,
        parts=tuple(PartWork(part.archived(number, 0), tuple(piece.packed for piece in part.pieces)) for part in group),
    )


def _facts(files: Sequence[ArchiveFile], number: int) -> Iterator[MapCompacted]:
    lanes: dict[LaneId, dict[Side, list[ArchivedRuns]]] = {}
    for file in files:
        lanes.setdefault(file.lane, {"source": [], "target": []})[file.side] += file.parts
    for lane, sides in lanes.items():
        source, target = (tuple(sorted(sides[side], key=_first)) for side in ("source", "target"))
        yield MapCompacted(number, lane, source, target)


def _first(part: ArchivedRuns) -> int:
    return part.first_ordinal


async def _record(store: LedgerStore, facts: Sequence[MapCompacted]) -> list[MapCompacted]:
    """Append these facts, and return the facts that took effect."""
    recorded: list[MapCompacted] = []
    some: list[MapCompacted] = []
    for fact in facts:
        some.append(fact)
        if fact is facts[-1] or sum(len(each.source) + len(each.target) for each in some) >= PARTS_PER_ENTRY:
            bound = await store.append(store.state.lease_epoch, some)
            recorded += [each for each, binds in zip(some, bound, strict=True) if binds]
            some = []
    return recorded


async def _trim(store: LedgerStore) -> bool:
    """Trim the ledger if its lease has been released, because then no other process trims it.

    Return whether the snapshots of the ledger no longer contain moved runs.
    """
    if store.has_moved_runs and store.state.released:
        await store.trim()
    return not store.has_moved_runs


def _used(state: FlowState) -> set[int]:
    """Return the numbers of the generations to which the ledger refers."""
    return {
        piece.archived.generation
        for lane in state.lanes.values()
        for runs in (lane.source_runs, lane.target_runs)
        for piece in runs.pieces
        if piece.archived is not None
    }
