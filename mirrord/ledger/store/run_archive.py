"""The dataset to which `mirrord compact` moves older runs: Parquet files that are written once and never changed. Each
compaction writes one generation of the dataset:

    PATH/FLOW/generation=000003/topic=orders/partitions=000000-000063/source-000002-0000000000000000000-IDS.parquet
    PATH/FLOW/generation=000003/_manifest.json

Each row is a run, with its side and with the ordinal and the offset at which it begins. For each row group, the ledger
stores a summary (`ArchivedRuns`). With this summary, a lookup by ordinal reads only one row group.

The manifest is written last. A generation without a manifest is incomplete. Spark ignores the manifest because its name
begins with an underscore. pyarrow is imported when files are read or written, so a daemon that never reads the dataset
does not need pyarrow.
"""

import importlib
import os
import shutil
import uuid
from array import array
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import structlog

from mirrord.config.schema import FlowConfig
from mirrord.ledger.compaction_plan import columns_checksum
from mirrord.model.archived_runs import Archive, ArchivedPart, ArchivedRuns, ArchiveLost
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.model.names import LaneId, LaneKey, Side, TopicId
from mirrord.model.run_codec import RunColumns, pack

SCHEMA = 1
"""The version of the schema, as it is written to a manifest. A reader rejects a manifest with a different version."""
RANGE_PARTITIONS = 64
READ_S = 2.0
"""Time limit for a read, in seconds. A folder that does not answer must not block a caller that has to renew a
lease."""
MANIFEST = "_manifest.json"
_UNFINISHED = ".unfinished"

log = structlog.get_logger()


class ArchiveFile(msgspec.Struct, frozen=True, kw_only=True):
    """One Parquet file of a generation, which is the set of files that one compaction has written."""

    path: str
    """The path of the file, relative to the folder of the generation."""
    size_bytes: int
    topic: str
    partition: int
    lane: LaneId
    side: Side
    parts: tuple[ArchivedRuns, ...]
    """A summary of each row group of the file."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a whole generation."""

    schema: int
    flow: str
    ledger: TopicId
    """The topic id of the ledger topic that refers to this generation."""
    generation: int
    ledger_offset: int
    """The ledger offset up to which entries were taken into account for this generation."""
    files: tuple[ArchiveFile, ...]


def generation_folder(folder: Path, generation: int) -> Path:
    """Return the folder of a generation. One compaction writes one generation."""
    return folder / f"generation={generation:06}"


def generations(folder: Path) -> dict[int, Path]:
    """Return the folders of the existing generations, complete or not, by number. Raises OSError."""
    found: dict[int, Path] = {}
    for path in folder.glob("generation=*") if folder.is_dir() else ():
        number = path.name.partition("=")[2]
        if number.isascii() and number.isdigit():
            found[int(number)] = path
    return found


def file_path(topic: str, partition: int, side: Side, first_ordinal: int, lane: LaneId) -> str:
    """Return the path of a file, relative to the folder of the generation.

    The path contains topic ids, because a topic that was deleted and re-created has different lanes under the same
    name. Names and ids are quoted: they come from the ledger, and must not lead to another folder. Quoting changes no
    name that is valid in Kafka.
    """
    low = partition // RANGE_PARTITIONS * RANGE_PARTITIONS
    partitions = f"{low:06}-{low + RANGE_PARTITIONS - 1:06}"
    key = LaneKey.parse(lane)
    ids = quote(f"{key.source_topic_id}.{key.target_topic_id}", safe="")
    file = f"{side}-{partition:06}-{first_ordinal:019}-{ids}.parquet"
    return f"topic={quote(topic, safe='')}/partitions={partitions}/{file}"


def write_file(path: Path, topic: str, partition: int, lane: LaneId, side: Side, parts: Sequence[RunColumns]) -> int:
    """Write runs to a file, with one row group for each part, and read them back. Return the size of the file in bytes.

    Raises OSError. Raises ValueError if the file does not contain the runs that were written.
    """
    arrow, parquet = _arrow()
    schema = _schema()
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}{_UNFINISHED}")
    # Ordinals and offsets rise in small steps, so the difference between two of them takes one or two bytes.
    encoding = {"ordinal": "DELTA_BINARY_PACKED", "offset": "DELTA_BINARY_PACKED"}
    names = ["topic", "partition", "lane", "side"]
    with parquet.ParquetWriter(
        unfinished, schema, compression="zstd", use_dictionary=names, column_encoding=encoding
    ) as writer:
        for ordinals, offsets in parts:
            same: list[Any] = [
                arrow.repeat(arrow.scalar(value, schema.field(name).type), len(ordinals))
                for name, value in zip(names, (topic, partition, lane, side), strict=True)
            ]
            numbers = [arrow.array(memoryview(column), arrow.int64()) for column in (ordinals, offsets)]
            writer.write_table(arrow.table([*same, *numbers], schema=schema), row_group_size=max(len(ordinals), 1))
    _sync(unfinished)
    read = parquet.ParquetFile(unfinished)
    for number, columns in enumerate(parts):
        if _columns(read.read_row_group(number, columns=["ordinal", "offset"])) != columns:
            raise ValueError(f"{unfinished} does not hold what was written to it")
    size = unfinished.stat().st_size
    unfinished.replace(path)
    return size


def _write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest of a generation to its folder. The generation is then complete. Raises OSError."""
    unfinished = folder / f"{MANIFEST}{_UNFINISHED}"
    unfinished.write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=1))
    _sync(unfinished)
    for path, _, _ in os.walk(folder):
        _sync(Path(path))
    unfinished.replace(folder / MANIFEST)
    _sync(folder)
    _sync(folder.parent)


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a generation. Raises OSError or ValueError."""
    return decode_manifest((folder / MANIFEST).read_bytes())


def decode_manifest(data: bytes) -> Manifest:
    """Return the manifest with these contents. Raises ValueError."""
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except RecursionError as error:
        raise ValueError(str(error)) from None
    if manifest.schema != SCHEMA:
        raise ValueError(f"it has schema {manifest.schema}, but this program knows only {SCHEMA}")
    return manifest


def complete_generation(folder: Path, manifest: Manifest) -> None:
    """Check that all files of a generation exist, and write its manifest. Raises EnvironmentFault."""
    try:
        for path in _missing_files(folder, manifest.files):
            where = "the folder of [compact] path must be the same for all of Spark's executors"
            raise EnvironmentFault(f"{folder / path} does not hold what was written; {where}")
        _write_manifest(folder, manifest)
    except OSError as error:
        raise EnvironmentFault(f"nothing can be written to {folder}: {error.strerror or error}") from error


def generation_numbers(folder: Path) -> list[int]:
    """Return the numbers of the generations that compactions have written to this folder. Raises EnvironmentFault."""
    try:
        return list(generations(folder))
    except OSError as error:
        raise EnvironmentFault(f"{folder} cannot be read: {error.strerror or error}") from error


def remove_unused_generations(folder: Path, number: int, used: set[int], ledger: str) -> None:
    """Remove the generations that earlier compactions left incomplete, and the generations to which the ledger no
    longer refers.

    Complete generations of another ledger are kept. Raises EnvironmentFault.
    """
    try:
        for generation, path in generations(folder).items():
            if generation < number and generation not in used and _is_ours(path, ledger):
                shutil.rmtree(path)
                log.info("generation_removed", folder=str(path))
    except OSError as error:
        raise EnvironmentFault(f"{folder} cannot be cleaned up: {error.strerror or error}") from error


def _is_ours(path: Path, ledger: str) -> bool:
    try:
        return read_manifest(path).ledger == ledger
    except FileNotFoundError:
        return True
    except (OSError, ValueError):
        return False


def _missing_files(folder: Path, files: Sequence[ArchiveFile]) -> Iterator[str]:
    """Yield the paths of files that are missing or whose size is not `size_bytes`. Raises OSError."""
    for each in files:
        path = folder / each.path
        if not path.is_file() or path.stat().st_size != each.size_bytes:
            yield each.path


class FolderArchive:
    """An `Archive` in a folder. If a read takes longer than `READ_S`, `get` raises ArchiveLost until that read has
    finished."""

    def __init__(self, folder: Path, read_s: float = READ_S) -> None:
        self.folder = folder
        self._read_s = read_s
        self._manifests: dict[int, Manifest] = {}
        self._reader: ThreadPoolExecutor | None = None
        self._pending: tuple[ArchivedPart, Future[RunColumns]] | None = None

    def get(self, part: ArchivedPart) -> bytes:
        """Return the packed runs of a part. Raises ArchiveLost."""
        _arrow()  # the first import is slow and must not count toward the time limit
        try:
            columns = self._within_time(part)
        except Late:
            raise ArchiveLost(f"the compacted part of the map in {self.folder} does not answer") from None
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            raise ArchiveLost(f"the compacted part of the map in {self.folder} cannot be read: {error}") from None
        return pack(*columns, part.runs.turns)

    def _within_time(self, part: ArchivedPart) -> RunColumns:
        """Return the runs of a part. Raises TimeoutError if they cannot be read within the time limit.

        A result that arrives too late is kept for the next caller that requests the same part.
        """
        if self._pending is not None and not self._pending[1].done():
            raise Late
        if self._pending is None or self._pending[0] != part:
            if self._reader is None:
                self._reader = ThreadPoolExecutor(1, "map-archive")
            self._pending = part, self._reader.submit(self._read, part)
        reading = self._pending[1]
        try:
            return reading.result(self._read_s)
        finally:
            if reading.done():
                self._pending = None

    def _read(self, part: ArchivedPart) -> RunColumns:
        wanted = part.runs
        folder = generation_folder(self.folder, wanted.generation)
        manifest = self._manifests.get(wanted.generation)
        if manifest is None:
            manifest = self._manifests[wanted.generation] = read_manifest(folder)
        files = [folder / each.path for each in manifest.files if _is_of(each, part)]
        if not files:
            raise ValueError(f"{folder.name} does not hold it")
        _, parquet = _arrow()
        filters = [("ordinal", ">=", wanted.first_ordinal), ("ordinal", "<=", wanted.last_ordinal)]
        columns = _columns(
            parquet.read_table(files[0], columns=["ordinal", "offset"], filters=filters, partitioning=None)
        )
        if len(columns[0]) != wanted.count or columns_checksum(columns) != wanted.checksum:
            raise ValueError(f"{files[0].name} is damaged")
        return columns


def flow_archive(flow: FlowConfig, known: Archive | None = None) -> Archive | None:
    """Return the dataset of a flow in the folder that `[compact] path` names. Return None if no folder is configured.
    Return `known` itself if it is the same dataset."""
    if flow.archive is None:
        return None
    folder = Path(flow.archive) / flow.name
    return known if isinstance(known, FolderArchive) and known.folder == folder else FolderArchive(folder)


def writable(folder: Path) -> None:
    """Check that a folder exists or can be created, and that files can be written to it. Raises ConfigError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".{uuid.uuid4().hex[:8]}{_UNFINISHED}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ConfigError(f"[compact] path: nothing can be written to {folder}: {error.strerror}") from error


def _is_of(file: ArchiveFile, part: ArchivedPart) -> bool:
    is_side = file.lane == part.lane and file.side == part.side
    return is_side and any(each.first_ordinal == part.runs.first_ordinal for each in file.parts)


def _columns(table: Any) -> RunColumns:
    found: list[array[int]] = []
    for name in ("ordinal", "offset"):
        column = array("q")
        for chunk in table.column(name).chunks:
            # Arrow's bytes are used directly. The first buffer marks null values, of which there are none.
            held = chunk.buffers()[1]
            column.frombytes(memoryview(held)[8 * chunk.offset : 8 * (chunk.offset + len(chunk))])
        found.append(column)
    return found[0], found[1]


def _schema() -> Any:
    arrow, _ = _arrow()
    return arrow.schema(
        [
            ("topic", arrow.string()),
            ("partition", arrow.int32()),
            ("lane", arrow.string()),
            ("side", arrow.string()),
            arrow.field("ordinal", arrow.int64(), nullable=False),
            arrow.field("offset", arrow.int64(), nullable=False),
        ],
        metadata={"mirrord.schema": str(SCHEMA)},
    )


def _arrow() -> tuple[Any, Any]:
    return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")


def _sync(path: Path) -> None:
    """Flush a file or folder to disk, so that it survives a crash of the machine."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
