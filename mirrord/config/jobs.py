"""The periodic jobs that run alongside the daemon: `[audit]` and `[compact]`. Both apply to all flows of the file."""

import re
from collections.abc import Iterator
from typing import Literal, cast

import msgspec

from mirrord.config import toml_reader as read
from mirrord.config.toml_reader import Table
from mirrord.config.units import duration_ms, rate_bytes_per_s, regex

Level = Literal["ledger", "digest", "records"]

MASTER_RULE = "such as local[2], spark://host:7077, k8s://https://host:6443, yarn"
_MASTER = re.compile(r"local(-cluster)?(\[[^\[\]]+\])?|spark://.+|k8s://.+|yarn")
_KEY = re.compile(r"[A-Za-z0-9_.-]+")
_SPARK_RULE = 'settings of Spark such as spark.master = "local[2]": texts, numbers, true or false'
_YEAR_MS = 365 * 86_400_000
_EVERY = read.within(duration_ms, 10_000, _YEAR_MS, '"10s" to "365d"')
_AGO = read.within(duration_ms, 1_000, 10 * _YEAR_MS, '"1s" to "3650d"')
_LEVEL: read.Convert[Level] = read.choice("ledger", "digest", "records")
_LEAST = read.integer(1, 1 << 40)


class AuditConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How the copies are audited on a schedule."""

    every_ms: int | None = None
    """Interval between audits. None means that an audit runs only when `mirrord audit` is called."""
    level: Level = "digest"
    topics: tuple[str, ...] = ()
    """Source topics to audit, as regexes that match the whole name. Empty means all."""
    since_ms: int | None = None
    """Maximum age of the records to audit. None means all records."""
    sample: float = 1.0
    """Share of the ranges to audit, chosen at random."""
    again: bool = False
    """Whether ranges that earlier audits have proven are audited again."""
    rate_bytes_per_s: int | None = None
    """Maximum read rate of both clusters together."""
    out: str | None = None
    """Folder for the results of each flow as Parquet, with an HTML report of each audit. None means that they are not
    kept.
    """
    spark: dict[str, str] = {}


class CompactConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Where `mirrord compact` moves older runs of the offset map, and how this is scheduled."""

    path: str | None = None
    """Folder that the daemon, the command line and Spark's executors all have access to. None means that the ledger
    keeps everything.
    """
    every_ms: int | None = None
    topics: tuple[str, ...] = ()
    least: int | None = None
    """Number of runs of a side at which a partition's runs are moved. None means enough runs for a whole part of a
    file.
    """
    spark: dict[str, str] = {}


def read_audit(table: Table) -> AuditConfig:
    """Read the table `[audit]`."""
    found = AuditConfig(
        every_ms=table.optional("every", _EVERY, None),
        level=table.optional("level", _LEVEL, "digest"),
        topics=table.list_of("topics", regex),
        since_ms=table.optional("since", _AGO, None),
        sample=table.optional("sample", _share, 1.0),
        again=table.optional("again", read.boolean, False),
        rate_bytes_per_s=table.optional("rate", rate_bytes_per_s, None),
        out=table.optional("out", read.text, None),
        spark=table.optional("spark", spark_settings, {}),
    )
    if found.level == "ledger":
        for key in ("sample", "rate", "spark"):
            if table.has(key):
                table.fault(key, 'has no meaning beside level = "ledger", which reads no record and needs no Spark')
    return found


def read_compact(table: Table) -> CompactConfig:
    """Read the table `[compact]`."""
    found = CompactConfig(
        path=table.optional("path", read.text, None),
        every_ms=table.optional("every", _EVERY, None),
        topics=table.list_of("topics", regex),
        least=table.optional("least", _LEAST, None),
        spark=table.optional("spark", spark_settings, {}),
    )
    if found.every_ms is not None and found.path is None:
        table.fault("path", 'missing beside every; allowed: a folder for the files, such as "/srv/maps"')
    return found


def spark_settings(found: object) -> dict[str, str]:
    """Read Spark's own settings by their full names.

    They are in a table `spark`, so `spark.master` is written as such.
    """
    if not isinstance(found, dict):
        raise ValueError(_SPARK_RULE)
    settings = dict(_flat("spark", cast(dict[str, object], found)))
    check_master(settings)
    return settings


def check_master(settings: dict[str, str]) -> None:
    """Raise ValueError if `spark.master` is not valid."""
    master = settings.get("spark.master", "local")
    if not _MASTER.fullmatch(master):
        raise ValueError(f'spark.master {MASTER_RULE} (found "{master}")')


def _flat(path: str, table: dict[str, object]) -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        # A key in quotes may be the whole name.
        name = key if path == "spark" and key.startswith("spark.") else f"{path}.{key}"
        if isinstance(value, dict):
            yield from _flat(name, cast(dict[str, object], value))
        elif isinstance(value, bool):
            yield name, str(value).lower()
        elif isinstance(value, str | int | float) and _KEY.fullmatch(name):
            yield name, str(value)
        else:
            raise ValueError(_SPARK_RULE)


def _share(found: object) -> float:
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 < found <= 1:
        raise ValueError("a share above 0 and up to 1, such as 0.1")
    return float(found)
