"""The Parquet file of `mirrord divergence --out`: the records that exist only on the source or only on the target."""

import importlib
from pathlib import Path
from typing import Any

from mirrord.kafka.protocol.record import DecodedRecord
from mirrord.kafka.records.header_names import shown_name
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.runtime.arrow import arrow

ROWS_AT_ONCE = 10_000
_parquet: Any = importlib.import_module("pyarrow.parquet")
_HEADERS: Any = arrow.list_(arrow.struct([arrow.field("key", arrow.string()), arrow.field("value", arrow.binary())]))
_SCHEMA: Any = arrow.schema(
    [
        ("flow", arrow.string()),
        ("side", arrow.string()),
        ("why", arrow.string()),
        ("topic", arrow.string()),
        ("partition", arrow.int32()),
        ("offset", arrow.int64()),
        ("timestamp_ms", arrow.int64()),
        ("key", arrow.binary()),
        ("value", arrow.binary()),
        ("headers", _HEADERS),
    ]
)


class AtomicParquetFile:
    """The Parquet file of diverging records. It is written under a temporary name and appears only when it is
    complete."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "divergence.parquet"
        self._part = folder / ".divergence.parquet.part"
        self._rows: list[dict[str, object]] = []
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if self._path.exists():
                raise ConfigError(f"--out: {self._path} already exists; choose a different folder, or remove it")
            self._writer: Any = _parquet.ParquetWriter(self._part, _SCHEMA, compression="zstd")
        except OSError as error:
            raise ConfigError(f"--out: nothing can be written to {folder}: {error.strerror or error}") from None

    def take(self, stretch_columns: dict[str, object], record: DecodedRecord) -> None:
        """Add one record. `stretch_columns` holds the columns that all records of an offset range share: flow, side,
        reason, topic and partition."""
        headers = [{"key": shown_name(name), "value": value} for name, value in record.headers]
        row = {"offset": record.offset, "timestamp_ms": record.time_ms, "key": record.key, "value": record.value}
        self._rows.append({**stretch_columns, **row, "headers": headers})
        if len(self._rows) >= ROWS_AT_ONCE:
            self._flush()

    def finish(self) -> None:
        """Finish the file and give it its final name. Raises EnvironmentFault."""
        try:
            self._flush()
            self._writer.close()
            self._part.rename(self._path)
        except OSError as error:
            raise EnvironmentFault(f"{self._path} cannot be written: {error.strerror or error}") from None

    def drop(self) -> None:
        """Remove the temporary file, unless `finish` has renamed it."""
        self._part.unlink(missing_ok=True)

    def _flush(self) -> None:
        self._writer.write_table(arrow.Table.from_pylist(self._rows, schema=_SCHEMA))
        self._rows = []
