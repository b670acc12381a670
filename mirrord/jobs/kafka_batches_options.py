"""Parses and checks the options of the Spark data source `kafka_batches`. If any options are invalid, one ConfigError
lists all faults."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import msgspec

from mirrord.config import value_parsers as read
from mirrord.config.fault_text import closest_name, shown
from mirrord.config.loader import load, read_security
from mirrord.config.schema import ClusterConfig
from mirrord.config.security import Security
from mirrord.config.toml_reader import Document, Table
from mirrord.config.units import SIZE_RULE, size_bytes
from mirrord.config.value_parsers import HOST_RULE, host_port
from mirrord.model.errors import ConfigError
from mirrord.model.names import TopicPartition

NAME = "kafka_batches"
SPLIT_BYTES = 64 << 20
LEAST_SPLIT_BYTES = 64 << 10
_RANGES_RULE = (
    'JSON such as {"orders": {"0": [0, 1000]}}: for each partition, the first offset and the one after the last'
)
_TOPICS_RULE = 'topic names separated by commas, such as "orders,payments"'
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_ISOLATION: read.Convert[str] = read.choice("read_committed", "read_uncommitted")
_MOST = (1 << 63) - 1


class LogRange(msgspec.Struct, frozen=True, order=True):
    """The offsets [start, end) of a partition."""

    partition: TopicPartition
    start: int
    end: int


class BatchesOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The parsed options of the data source: what to read, and how to read it."""

    alias: str
    """The name of the cluster in error messages."""
    cluster: ClusterConfig
    topics: tuple[str, ...] = ()
    """Topics to read completely, from the log start offset to the log end. Either `topics` or `ranges` is given."""
    ranges: tuple[LogRange, ...] = ()
    records: bool = False
    """Whether to return one row for each record instead of one for each batch."""
    committed: bool = True
    split_bytes: int = SPLIT_BYTES
    """Approximate number of bytes that one task reads."""


def parse(options: Mapping[str, str]) -> BatchesOptions:
    """Return the parsed options of a Spark reader. Raises a ConfigError that lists all faults. Relative paths are
    resolved against the working directory."""
    document = Document("", NAME)
    table = Table(document, "", dict(options))
    conf = table.optional("conf", read.text, "")
    alias = table.optional("cluster", read.text, "")
    bootstrap = table.optional("bootstrap", _addresses, ())
    written = table.optional("security", read.text, "")
    parsed = BatchesOptions(
        alias=alias or ",".join(bootstrap) or "the cluster",
        cluster=ClusterConfig(bootstrap, Security()),
        topics=table.optional("topics", _topics, ()),
        ranges=table.optional("ranges", _ranges, ()),
        records=table.optional("records", _truth, False),
        committed=table.optional("isolation", _ISOLATION, "read_committed") == "read_committed",
        split_bytes=table.optional(
            "split", read.within(_size, LEAST_SPLIT_BYTES, 1 << 40, '"64KiB" to "1024GiB"'), SPLIT_BYTES
        ),
    )
    if not conf:
        table.needs("bootstrap", _addresses, "(or conf and cluster)")
        if alias:
            table.fault("cluster", "has no effect without conf")
    else:
        table.needs("cluster", read.text, "with conf")
        for key in ("bootstrap", "security"):
            if table.has(key):
                table.fault(key, "has no effect with conf, which defines it")
    if table.has("topics") == table.has("ranges"):
        found = "both are set" if table.has("topics") else "missing"
        table.fault("topics", f"{found}; exactly one of topics and ranges is needed: {_TOPICS_RULE}; or {_RANGES_RULE}")
    document.finish()
    cluster = _of_conf(conf, alias) if conf else ClusterConfig(bootstrap, _security(written))
    return msgspec.structs.replace(parsed, cluster=cluster)


def _of_conf(path: str, alias: str) -> ClusterConfig:
    config = load(path)
    if alias not in config.clusters:
        like = closest_name(alias, config.clusters)
        hint = f'; did you mean "{like}"?' if like else ""
        raise ConfigError(f'{NAME}: cluster: {path} has no cluster "{alias}"{hint}')
    return config.clusters[alias]


def _security(written: str) -> Security:
    """Return the parsed option `security`. It has the syntax of conf.toml: `{ protocol = "SSL", ca = "file:ca.pem"
    }`."""
    if not written:
        return Security()
    document = Document(f"security = {' '.join(written.splitlines())}", NAME)
    security = read_security(document.root.table("security"))
    document.finish()
    return security.below(Path.cwd())


def _addresses(found: object) -> tuple[str, ...]:
    try:
        return tuple(str(host_port(each.strip())) for each in cast(str, found).split(","))
    except (ValueError, AttributeError):
        raise ValueError(f"{HOST_RULE}, or several, separated by commas") from None


def _topics(found: object) -> tuple[str, ...]:
    names = [name.strip() for name in str(found).split(",")]
    if not all(_TOPIC.fullmatch(name) for name in names):
        raise ValueError(_TOPICS_RULE)
    return tuple(dict.fromkeys(names))


def _ranges(found: object) -> tuple[LogRange, ...]:
    try:
        topics = msgspec.convert(json.loads(cast(str, found)), dict[str, dict[int, tuple[int, int]]], strict=False)
    except (ValueError, TypeError):
        raise ValueError(_RANGES_RULE) from None
    ranges = [
        LogRange(TopicPartition(topic, partition), start, end)
        for topic, partitions in topics.items()
        for partition, (start, end) in partitions.items()
    ]
    for each in ranges:
        if not 0 <= each.start <= each.end <= _MOST or each.partition.partition < 0:
            raise ValueError(f"{_RANGES_RULE} ({each.partition} has {each.start} and {each.end})")
    if not ranges:
        raise ValueError(_RANGES_RULE)
    return tuple(sorted(ranges))


def _truth(found: object) -> bool:
    words = {"true": True, "false": False}
    value = words.get(str(found).lower())
    if value is None:
        raise ValueError("true or false")
    return value


def _size(found: object) -> int:
    try:
        return size_bytes(int(found) if isinstance(found, str) and found.isdecimal() else found)
    except ValueError:
        raise ValueError(f"{SIZE_RULE}, not {shown(found)}") from None
