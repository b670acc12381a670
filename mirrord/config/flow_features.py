"""What a flow does besides copying records: groups, topic settings and ACLs, heartbeats, records for Kafka's own tools.

Each struct is one table of a flow in conf.toml; its reader stands beside it. Regexes match whole names.
"""

import re
from typing import Literal

import msgspec

from mirrord.config import toml_reader as read
from mirrord.config.policy_names import (
    RECORD_FILTERS,
    RECORD_TRANSFORMS,
    PolicySettings,
    policy,
    record_policy,
    settings,
)
from mirrord.config.units import duration_ms, regex

GroupsMode = Literal["follow", "forward-only", "off"]
AclsMode = Literal["read-only", "exact", "off"]
DefaultsFrom = Literal["source", "target"]
EmitOn = Literal["target", "source", "both", "off"]
OffsetSyncsOn = Literal["target", "source", "off"]
Mm2Takeover = Literal["verify", "trust", "off"]
OnError = Literal["halt", "reject"]
InternalFactor = int | Literal["broker"]

UNWANTED_GROUPS = ("console-consumer-.*", "connect-.*", "__.*")
"""MirrorMaker 2's default for `groups.exclude`."""
UNWANTED_CONFIGS = (
    r"follower\.replication\.throttled\.replicas",
    r"leader\.replication\.throttled\.replicas",
    r"message\.timestamp\.difference\.max\.ms",
    r"message\.timestamp\.type",
    r"unclean\.leader\.election\.enable",
    r"min\.insync\.replicas",
)
"""MirrorMaker 2's default for `config.properties.exclude`."""

MONTH_MS = 30 * 86_400_000
_GROUPS_MODE: read.Convert[GroupsMode] = read.choice("follow", "forward-only", "off")
_ACLS_MODE: read.Convert[AclsMode] = read.choice("read-only", "exact", "off")
_DEFAULTS_FROM: read.Convert[DefaultsFrom] = read.choice("source", "target")
_EMIT_ON: read.Convert[EmitOn] = read.choice("target", "source", "both", "off")
_OFFSET_SYNCS_ON: read.Convert[OffsetSyncsOn] = read.choice("target", "source", "off")
_MM2_TAKEOVER: read.Convert[Mm2Takeover] = read.choice("verify", "trust", "off")
_ON_ERROR: read.Convert[OnError] = read.choice("halt", "reject")
_FACTOR: read.Convert[InternalFactor] = read.either("broker", read.integer(1, 32_767))
EVERY = read.within(duration_ms, 100, MONTH_MS, '"100ms" to "30d"')
_SEPARATOR = re.compile(r"[A-Za-z0-9._-]{1,16}")
_LAG = read.integer(0, 2**63 - 1)
_VERIFY_RECORDS = read.integer(1, 1_000_000)
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def refresh(found: object) -> int | None:
    """Milliseconds between two looks, or None for "never": only what a start finds."""
    if found == "never":
        return None
    try:
        return EVERY(found)
    except ValueError as rule:
        raise ValueError(f'"never" or {rule}') from None


def topic_name(found: object) -> str:
    """A name that a topic can have."""
    if not isinstance(found, str) or not _TOPIC.fullmatch(found):
        raise ValueError('a topic: up to 249 letters, digits, ".", "_" and "-"')
    return found


def separator(found: object) -> str:
    """What stands between the parts of a topic's name."""
    if not isinstance(found, str) or not _SEPARATOR.fullmatch(found):
        raise ValueError('up to 16 letters, digits, ".", "_" and "-", such as "." or "__"')
    return found


class GroupsConfig(msgspec.Struct, frozen=True):
    """Which consumer groups are carried over, and how."""

    match: tuple[str, ...] = (".*",)
    exclude: tuple[str, ...] = UNWANTED_GROUPS
    mode: GroupsMode = "follow"
    """follow: the target goes where the source goes, also back; forward-only: never back; off: not at all."""
    every_ms: int = 1_000
    """A commit at the source is translated at the target within this time."""
    refresh_ms: int | None = 5_000
    """How often new groups are looked for; None: never."""
    reverse: bool = False
    """Groups that move on at the target are followed at the source, too. mirrord then commits there."""
    both_ways: bool = False
    """Another flow copies the same topics back under the same names: a position counts the records of both sides."""


class SyncConfig(msgspec.Struct, frozen=True):
    """What of a topic besides its records is kept like the source's."""

    configs: bool = True
    exclude_configs: tuple[str, ...] = UNWANTED_CONFIGS
    """Topic settings that are left alone at the target."""
    use_defaults_from: DefaultsFrom = "target"
    """A setting that the source has at its default: is removed at the target, or set to the source's value."""
    acls: AclsMode = "read-only"
    """read-only: rights to read, never to write; exact: all of them, removals too; off: none."""
    every_ms: int = 5_000
    filter_configs: str = ""
    """A policy of a third party that leaves more settings alone; empty: none."""
    filter_settings: PolicySettings = {}


class HeartbeatsConfig(msgspec.Struct, frozen=True):
    """MirrorMaker 2's heartbeats: records in a topic `heartbeats`, which a flow copies like any other."""

    emit: EmitOn = "target"
    """On which cluster they are written. At the target they name the flow; at the source its opposite, so that this
    flow carries them and consumers of the target see that it is alive."""
    every_ms: int = 1_000
    replicate: bool = True
    """Heartbeats topics are copied, whatever the topic lists say."""
    replication_factor: InternalFactor = "broker"


class Mm2RecordsConfig(msgspec.Struct, frozen=True):
    """What MirrorMaker 2's clients (RemoteClusterUtils, MirrorClient, the formatters) read."""

    checkpoints: bool = True
    checkpoints_every_ms: int = 1_000
    checkpoints_replication_factor: InternalFactor = "broker"
    offset_syncs: OffsetSyncsOn = "target"
    """On which cluster the topic stands. At the source, mirrord needs the right to write there."""
    offset_syncs_replication_factor: InternalFactor = "broker"
    offset_lag_max: int = 100
    """A pair of offsets is written after so many records, but not more often than once a second."""
    separator: str = "."
    """Between the parts of the topics' names, such as `eu.checkpoints.internal`."""


class FromMm2Config(msgspec.Struct, frozen=True):
    """Going on where MirrorMaker 2 left off: for partitions without a history of ours whose target has records."""

    takeover: Mm2Takeover = "verify"
    """verify: at the position that MirrorMaker 2 wrote down, once the end of the target agrees with the source; trust:
    there, unseen; off: as for any other topic."""
    offsets_topic: str | None = None
    """Where it wrote that down, a topic of the target cluster. None: `mm2-offsets.<source>.internal`."""
    workers_group: str | None = None
    """The group of its workers at the target: while that has members, it still copies. None: `<source>-mm2`."""
    verify_records: int = 10_000
    """How many of the target's last records are compared, in each partition."""


class RecordsConfig(msgspec.Struct, frozen=True):
    """Policies that look at records. What they concern is copied record by record instead of whole batches."""

    topics: tuple[str, ...] = (".*",)
    """Source topics that they are asked about: regexes that match the whole name."""
    filter: str = ""
    """Which records are copied: `tombstones`, `keys`, or a policy of a third party; empty: all."""
    filter_settings: PolicySettings = {}
    transform: str = ""
    """What becomes of a record: `headers`, or a policy of a third party; empty: nothing."""
    transform_settings: PolicySettings = {}
    on_error: OnError = "halt"
    """What to do with a record that a policy has no answer for: halt in front of it, or reject it and go on."""

    @property
    def is_on(self) -> bool:
        """Whether there is any policy."""
        return bool(self.filter or self.transform)


def read_records(table: read.Table) -> RecordsConfig:
    """The `records` table."""
    default = RecordsConfig()
    return RecordsConfig(
        topics=table.list_of("topics", regex, default=default.topics),
        filter=table.optional("filter", record_policy(RECORD_FILTERS), ""),
        filter_settings=table.optional("filter_settings", settings, {}),
        transform=table.optional("transform", record_policy(RECORD_TRANSFORMS), ""),
        transform_settings=table.optional("transform_settings", settings, {}),
        on_error=table.optional("on_error", _ON_ERROR, default.on_error),
    )


def read_groups(table: read.Table) -> GroupsConfig:
    """The `groups` table."""
    default = GroupsConfig()
    return GroupsConfig(
        match=table.list_of("match", regex, default=default.match),
        exclude=table.list_of("exclude", regex, default=default.exclude),
        mode=table.optional("mode", _GROUPS_MODE, default.mode),
        every_ms=table.optional("every", EVERY, default.every_ms),
        refresh_ms=table.optional("refresh", refresh, default.refresh_ms),
        reverse=table.optional("reverse", read.boolean, default.reverse),
        both_ways=table.optional("both_ways", read.boolean, default.both_ways),
    )


def read_sync(table: read.Table) -> SyncConfig:
    """The `sync` table."""
    default = SyncConfig()
    return SyncConfig(
        configs=table.optional("configs", read.boolean, default.configs),
        exclude_configs=table.list_of("exclude_configs", regex, default=default.exclude_configs),
        filter_configs=table.optional("filter_configs", policy, default.filter_configs),
        filter_settings=table.optional("filter_settings", settings, {}),
        use_defaults_from=table.optional("use_defaults_from", _DEFAULTS_FROM, default.use_defaults_from),
        acls=table.optional("acls", _ACLS_MODE, default.acls),
        every_ms=table.optional("every", EVERY, default.every_ms),
    )


def read_heartbeats(table: read.Table) -> HeartbeatsConfig:
    """The `heartbeats` table."""
    default = HeartbeatsConfig()
    return HeartbeatsConfig(
        emit=table.optional("emit", _EMIT_ON, default.emit),
        every_ms=table.optional("every", EVERY, default.every_ms),
        replicate=table.optional("replicate", read.boolean, default.replicate),
        replication_factor=table.optional("replication_factor", _FACTOR, default.replication_factor),
    )


def read_mm2_records(table: read.Table) -> Mm2RecordsConfig:
    """The `mm2_records` table."""
    default = Mm2RecordsConfig()
    return Mm2RecordsConfig(
        checkpoints=table.optional("checkpoints", read.boolean, default.checkpoints),
        checkpoints_every_ms=table.optional("checkpoints_every", EVERY, default.checkpoints_every_ms),
        checkpoints_replication_factor=table.optional(
            "checkpoints_replication_factor", _FACTOR, default.checkpoints_replication_factor
        ),
        offset_syncs=table.optional("offset_syncs", _OFFSET_SYNCS_ON, default.offset_syncs),
        offset_syncs_replication_factor=table.optional(
            "offset_syncs_replication_factor", _FACTOR, default.offset_syncs_replication_factor
        ),
        offset_lag_max=table.optional("offset_lag_max", _LAG, default.offset_lag_max),
        separator=table.optional("separator", separator, default.separator),
    )


def read_from_mm2(table: read.Table) -> FromMm2Config:
    """The `from_mm2` table."""
    default = FromMm2Config()
    return FromMm2Config(
        takeover=table.optional("takeover", _MM2_TAKEOVER, default.takeover),
        offsets_topic=table.optional("offsets_topic", topic_name, default.offsets_topic),
        workers_group=table.optional("workers_group", read.text, default.workers_group),
        verify_records=table.optional("verify_records", _VERIFY_RECORDS, default.verify_records),
    )
