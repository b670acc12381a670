"""The tasks of a flow besides copying records.

They are groups, topic configs and ACLs, heartbeats, and records for Kafka's own tools. Each struct is one table of a
flow in conf.toml; its reader is in the same module. Regexes match whole names.
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
    """Convert a polling interval to milliseconds. "never" becomes None: only the topics found at a start are used."""
    if found == "never":
        return None
    try:
        return EVERY(found)
    except ValueError as rule:
        raise ValueError(f'"never" or {rule}') from None


def topic_name(found: object) -> str:
    """Check a topic name."""
    if not isinstance(found, str) or not _TOPIC.fullmatch(found):
        raise ValueError('a topic: up to 249 letters, digits, ".", "_" and "-"')
    return found


def separator(found: object) -> str:
    """Check a separator between the parts of a topic's name."""
    if not isinstance(found, str) or not _SEPARATOR.fullmatch(found):
        raise ValueError('up to 16 letters, digits, ".", "_" and "-", such as "." or "__"')
    return found


class GroupsConfig(msgspec.Struct, frozen=True):
    """Which consumer groups are synced, and how."""

    match: tuple[str, ...] = (".*",)
    exclude: tuple[str, ...] = UNWANTED_GROUPS
    mode: GroupsMode = "follow"
    """Direction of the sync. "follow": the target follows the source, also backwards. "forward-only": never backwards.
    "off": no sync.
    """
    every_ms: int = 1_000
    """Maximum time within which a commit at the source is translated to the target."""
    refresh_ms: int | None = 5_000
    """Interval at which new groups are looked for. None means never."""
    reverse: bool = False
    """Whether groups that move on at the target are also followed at the source. mirrord then commits there."""
    both_ways: bool = False
    """Whether another flow copies the same topics back under the same names, so that a position counts the records of
    both sides.
    """


class SyncConfig(msgspec.Struct, frozen=True):
    """Which properties of a topic, besides its records, are kept in sync with the source."""

    configs: bool = True
    exclude_configs: tuple[str, ...] = UNWANTED_CONFIGS
    """Topic configs that are left unchanged at the target."""
    use_defaults_from: DefaultsFrom = "target"
    """What happens to a config that the source has at its default: it is removed at the target, or set to the source's
    value.
    """
    acls: AclsMode = "read-only"
    """Which ACLs are synced. "read-only": those that allow reading, never those that allow writing. "exact": all of
    them, including removals. "off": none.
    """
    every_ms: int = 5_000
    filter_configs: str = ""
    """A third-party policy that excludes more configs from syncing, or an empty string."""
    filter_settings: PolicySettings = {}


class HeartbeatsConfig(msgspec.Struct, frozen=True):
    """MirrorMaker 2's heartbeats: records in a topic `heartbeats`, which a flow copies like any other topic."""

    emit: EmitOn = "target"
    """Cluster to which heartbeats are written. At the target they name the flow. At the source they name the opposite
    flow, so that this flow copies them and consumers of the target see that it is alive.
    """
    every_ms: int = 1_000
    replicate: bool = True
    """Whether heartbeats topics are copied, whatever the topic lists say."""
    replication_factor: InternalFactor = "broker"


class Mm2RecordsConfig(msgspec.Struct, frozen=True):
    """The records that MirrorMaker 2's clients (RemoteClusterUtils, MirrorClient, the formatters) read."""

    checkpoints: bool = True
    checkpoints_every_ms: int = 1_000
    checkpoints_replication_factor: InternalFactor = "broker"
    offset_syncs: OffsetSyncsOn = "target"
    """Cluster that holds the topic. At the source, mirrord needs permission to write there."""
    offset_syncs_replication_factor: InternalFactor = "broker"
    offset_lag_max: int = 100
    """Number of records after which a pair of offsets is written, but not more often than once a second."""
    separator: str = "."
    """Separator between the parts of the topics' names, such as `eu.checkpoints.internal`."""


class FromMm2Config(msgspec.Struct, frozen=True):
    """Continuation of MirrorMaker 2's copies.

    It applies to partitions that mirrord has not copied before and whose target has records.
    """

    takeover: Mm2Takeover = "verify"
    """Where copying begins. "verify": at the position that MirrorMaker 2 recorded, once the end of the target matches
    the source. "trust": at that position, without a comparison. "off": as for any other topic.
    """
    offsets_topic: str | None = None
    """Topic of the target cluster in which MirrorMaker 2 recorded its position. None means
    `mm2-offsets.<source>.internal`.
    """
    workers_group: str | None = None
    """Group of MirrorMaker 2's workers at the target. While it has members, MirrorMaker 2 is still copying. None means
    `<source>-mm2`.
    """
    verify_records: int = 10_000
    """Number of the target's last records that are compared in each partition."""


class RecordsConfig(msgspec.Struct, frozen=True):
    """Policies that inspect records.

    Topics to which they apply are copied record by record instead of in whole batches.
    """

    topics: tuple[str, ...] = (".*",)
    """Source topics to which they apply, as regexes that match the whole name."""
    filter: str = ""
    """Which records are copied: `tombstones`, `keys`, or a third-party policy. Empty means all."""
    filter_settings: PolicySettings = {}
    transform: str = ""
    """How records are transformed: `headers`, or a third-party policy. Empty means not at all."""
    transform_settings: PolicySettings = {}
    on_error: OnError = "halt"
    """What happens to a record for which a policy has no answer: the lane halts before it, or rejects it and goes to
    the next one.
    """

    @property
    def is_on(self) -> bool:
        """Whether there is any policy."""
        return bool(self.filter or self.transform)


def read_records(table: read.Table) -> RecordsConfig:
    """Read the `records` table."""
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
    """Read the `groups` table."""
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
    """Read the `sync` table."""
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
    """Read the `heartbeats` table."""
    default = HeartbeatsConfig()
    return HeartbeatsConfig(
        emit=table.optional("emit", _EMIT_ON, default.emit),
        every_ms=table.optional("every", EVERY, default.every_ms),
        replicate=table.optional("replicate", read.boolean, default.replicate),
        replication_factor=table.optional("replication_factor", _FACTOR, default.replication_factor),
    )


def read_mm2_records(table: read.Table) -> Mm2RecordsConfig:
    """Read the `mm2_records` table."""
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
    """Read the `from_mm2` table."""
    default = FromMm2Config()
    return FromMm2Config(
        takeover=table.optional("takeover", _MM2_TAKEOVER, default.takeover),
        offsets_topic=table.optional("offsets_topic", topic_name, default.offsets_topic),
        workers_group=table.optional("workers_group", read.text, default.workers_group),
        verify_records=table.optional("verify_records", _VERIFY_RECORDS, default.verify_records),
    )
