"""The configuration of scheduled jobs, which run alongside the daemon: `[audit]`, `[compact]` and `[drill]`. These
tables apply to all flows in the file."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, cast

import msgspec

from mirrord.config.key_declarations import Key
from mirrord.config.recovery import PRINCIPALS
from mirrord.config.security import Secret
from mirrord.config.value_kinds import BOOLEAN, RATE, REGEXES, TEXT, ValueKind, duration, number, one_of
from mirrord.model.jobs import AuditLevel

MASTER_RULE = "such as local[2], spark://host:7077, k8s://https://host:6443, yarn"
_MASTER = re.compile(r"local(-cluster)?(\[[^\[\]]+\])?|spark://.+|k8s://.+|yarn")
_KEY = re.compile(r"[A-Za-z0-9_.-]+")
SparkSettings = dict[str, str | Secret]
"""Spark properties by their full names. Values may be references to secrets."""
_SPARK_RULE = (
    'settings of Spark such as spark.master = "local[2]": strings, numbers, true or false, and secrets such as '
    '{ secret = "env:NAME" }'
)
SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""The environment variable with which spark-submit passes on the port of the Java process that it has started.
pyspark.java_gateway reads this variable."""
_YEAR_MS = 365 * 86_400_000
_EVERY = duration(10_000, _YEAR_MS)
_NO_SCHEDULE = "only when the command is called"


def spark_settings(found: object) -> SparkSettings:
    """Return the Spark properties that are set in a `spark` table of a conf.toml, keyed by their full names, such as
    `spark.master`.

    In TOML, the line `spark.master = "local[2]"` sets the key `master` of the table `spark`. This function restores the
    prefix `spark.`.

    A table whose only key is `secret` is a reference to a secret. A property that has such a name, and a reference as
    its value, has to be set by its full name in quotes.
    """
    if not isinstance(found, dict):
        raise ValueError(_SPARK_RULE)
    settings = dict(_flat("spark", cast(dict[str, object], found)))
    check_master(settings)
    return settings


def check_master(settings: Mapping[str, str | Secret]) -> None:
    """Raise ValueError if the property `spark.master` has an invalid value."""
    master = settings.get("spark.master", "local")
    if isinstance(master, Secret) or not _MASTER.fullmatch(master):
        raise ValueError(f'spark.master {MASTER_RULE} (found "{master}")')


def _flat(path: str, table: dict[str, object]) -> Iterator[tuple[str, str | Secret]]:
    for key, value in table.items():
        # A key in quotes, such as "spark.master", may already be the full name of a property.
        name = key if path == "spark" and key.startswith("spark.") else f"{path}.{key}"
        if secret := _reference(value):
            yield name, secret
        elif isinstance(value, dict):
            yield from _flat(name, cast(dict[str, object], value))
        elif isinstance(value, bool):
            yield name, str(value).lower()
        elif isinstance(value, str | int | float) and _KEY.fullmatch(name):
            yield name, str(value)
        else:
            raise ValueError(_SPARK_RULE)


def _reference(value: object) -> Secret | None:
    try:
        return Secret.of_table(value)
    except ValueError:
        return None  # the name of the property ends with `.secret`, as that of spark.authenticate.secret


def share(found: object) -> float:
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 < found <= 1:
        raise ValueError("a share above 0 and up to 1, such as 0.1")
    return float(found)


_SHARE = ValueKind(share, "a share above 0 and up to 1, such as `0.1`")
_SPARK = ValueKind(spark_settings, 'Spark properties by their full names, such as `spark.master = "local[2]"`')


class AuditConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Scheduled audits: how often the daemon runs `mirrord audit` for each flow, and with which options."""

    every_ms: Annotated[int | None, Key(_EVERY, "Interval between audits.", name="every", unset=_NO_SCHEDULE)] = None
    level: Annotated[
        AuditLevel,
        Key(
            one_of(AuditLevel),
            'What is compared. `"ledger"`: only the ledger and the ends of both logs. `"digest"`: the checksums of the '
            'batches. `"records"`: every record.',
        ),
    ] = "digest"
    topics: Annotated[tuple[str, ...], Key(REGEXES, "Source topics to audit. An empty list means all.")] = ()
    since_ms: Annotated[
        int | None,
        Key(duration(1_000, 10 * _YEAR_MS), "Maximum age of the records to audit.", name="since", unset="all records"),
    ] = None
    sample: Annotated[
        float, Key(_SHARE, "Share of the offset ranges that an audit compares. The ranges are chosen at random.")
    ] = 1.0
    again: Annotated[bool, Key(BOOLEAN, "Whether to compare ranges that an earlier audit has already proven.")] = False
    rate_bytes_per_s: Annotated[
        int | None,
        Key(RATE, "Maximum rate at which an audit reads, summed over both clusters.", name="rate", unset="unlimited"),
    ] = None
    out: Annotated[
        str | None,
        Key(
            TEXT,
            "Folder in which the results of each flow are kept as Parquet files, with an HTML report for each flow.",
            unset="results are not kept",
        ),
    ] = None
    spark: Annotated[
        SparkSettings,
        Key(_SPARK, "Spark properties. Without `spark.master`, Spark uses all cores of the daemon's machine."),
    ] = {}


class CompactConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The folder to which `mirrord compact` moves older parts of the offset map, and how often the daemon runs this
    command for each flow."""

    path: Annotated[
        str | None,
        Key(
            TEXT,
            "Folder for the files. The daemon, the command line and Spark's executors must all have access to it.",
            unset="nothing is moved out of the ledger",
        ),
    ] = None
    every_ms: Annotated[
        int | None, Key(_EVERY, "Interval between compactions. Requires `path`.", name="every", unset=_NO_SCHEDULE)
    ] = None
    topics: Annotated[tuple[str, ...], Key(REGEXES, "Source topics to compact. An empty list means all.")] = ()
    least: Annotated[
        int | None,
        Key(
            number(1, 1 << 40),
            "Parts of a partition's map with fewer gaps than this number stay in the ledger.",
            unset="`65536`",
        ),
    ] = None
    spark: Annotated[SparkSettings, Key(_SPARK, "Spark properties, as for `[audit]`.")] = {}


class DrillConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Scheduled drills: how often the daemon runs `mirrord drill` for each flow, and with which options."""

    every_ms: Annotated[int | None, Key(_EVERY, "Interval between drills.", name="every", unset=_NO_SCHEDULE)] = None
    sample: Annotated[
        float, Key(_SHARE, "Share of the consumer groups that a drill examines. The groups are chosen at random.")
    ] = 1.0
    principals: Annotated[
        tuple[str, ...],
        Key(PRINCIPALS, "Principals that must be allowed to READ and WRITE the target topics after a failover."),
    ] = ()
    canary: Annotated[
        bool,
        Key(
            BOOLEAN,
            "Whether a drill creates the topic `mirrord.FLOW.drill` on the target, writes, reads and commits there, "
            "and deletes it again.",
        ),
    ] = True
