"""The settings of a flow that go beyond copying records unchanged.

A flow can sync consumer groups, topic configs and ACLs. It can write heartbeats, and records for MirrorMaker 2 clients.
It can continue the copies that MirrorMaker 2 has made, and it can filter or change records. Each struct declares one
table of a flow in conf.toml. Regexes must match whole names.
"""

import re
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from mirrord.config.key_declarations import Key
from mirrord.config.policy_names import (
    CONFIG_FILTER,
    RECORD_FILTER,
    RECORD_TRANSFORM,
    PolicySettings,
    settings_of,
)
from mirrord.config.security import settings_below
from mirrord.config.value_kinds import BOOLEAN, REGEXES, TEXT, ValueKind, duration, either, number, one_of

GroupsMode = Literal["follow", "forward-only", "off"]
AclsMode = Literal["read-only", "exact", "off"]
DefaultsFrom = Literal["source", "target"]
EmitOn = Literal["target", "source", "both", "off"]
OffsetSyncsOn = Literal["target", "source", "off"]
Mm2TakeoverMode = Literal["verify", "trust", "off"]
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
EVERY = duration(100, MONTH_MS)
REFRESH = either("never", EVERY, None)
"""The allowed values for the interval between two polls. "never" means that the daemon polls only when it starts."""
_FACTOR = either("broker", number(1, 32_767))
_SEPARATOR = re.compile(r"[A-Za-z0-9._-]{1,16}")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def topic_name(found: object) -> str:
    """Return the topic name if it is valid. Raises ValueError."""
    if not isinstance(found, str) or not _TOPIC.fullmatch(found):
        raise ValueError('a topic: up to 249 letters, digits, ".", "_" and "-"')
    return found


def separator(found: object) -> str:
    """Return the separator for the parts of a topic name if it is valid. Raises ValueError."""
    if not isinstance(found, str) or not _SEPARATOR.fullmatch(found):
        raise ValueError('up to 16 letters, digits, ".", "_" and "-", such as "." or "__"')
    return found


SEPARATOR = ValueKind(separator, "up to 16 letters, digits, `.`, `_` and `-`")
_TOPIC_NAME = ValueKind(topic_name, "a topic name")


class GroupsConfig(msgspec.Struct, frozen=True):
    """Which consumer groups are synced, and how."""

    match: Annotated[tuple[str, ...], Key(REGEXES, "Consumer groups to sync.")] = (".*",)
    exclude: Annotated[tuple[str, ...], Key(REGEXES, "Groups that are not synced, even if `match` selects them.")] = (
        UNWANTED_GROUPS
    )
    mode: Annotated[
        GroupsMode,
        Key(
            one_of(GroupsMode),
            'How positions are synced. `"follow"`: positions on the target follow those on the source, even backward. '
            '`"forward-only"`: positions on the target are never moved backward. `"off"`: positions are not synced.',
        ),
    ] = "follow"
    every_ms: Annotated[
        int,
        Key(
            EVERY,
            "Maximum time from a commit on the source until the position is translated to the target.",
            name="every",
        ),
    ] = 1_000
    refresh_ms: Annotated[
        int | None,
        Key(
            REFRESH,
            'Interval at which mirrord looks for new groups. `"never"`: only when the daemon starts.',
            name="refresh",
        ),
    ] = 5_000
    reverse: Annotated[
        bool,
        Key(
            BOOLEAN,
            "Whether mirrord also syncs positions that groups commit on the target back to the source, to prepare a "
            "failback. mirrord then commits offsets on the source.",
        ),
    ] = False
    both_ways: Annotated[
        bool,
        Key(
            BOOLEAN,
            "Set this in one of two flows that copy the same topics in opposite directions under the same names. Each "
            "topic then holds records of both clusters, and positions are translated with the offset maps of both "
            "flows.",
        ),
    ] = False


class SyncConfig(msgspec.Struct, frozen=True):
    """Which configs and ACLs of a target topic are kept in sync with the source topic."""

    configs: Annotated[bool, Key(BOOLEAN, "Whether topic configs are synced.")] = True
    exclude_configs: Annotated[
        tuple[str, ...],
        Key(
            REGEXES,
            "Topic configs that are left unchanged on the target. Configs of tiered storage are never synced either.",
        ),
    ] = UNWANTED_CONFIGS
    use_defaults_from: Annotated[
        DefaultsFrom,
        Key(
            one_of(DefaultsFrom),
            'What happens to a config that is not set on the source topic. `"target"`: the config is removed from the '
            "target topic, so the target's default applies. `\"source\"`: the config is set to the source's default.",
        ),
    ] = "target"
    acls: Annotated[
        AclsMode | None,
        Key(
            one_of(AclsMode),
            'Which ACLs are synced. `"read-only"`: ACLs on individual topics, except those that allow writing. '
            '`"exact"`: all ACLs on topics and groups; ACLs that mirrord has added are removed when they are removed '
            'from the source. `"off"`: none. The other two require ALTER on the target cluster.',
            unset='`"off"`',
        ),
    ] = None
    every_ms: Annotated[
        int, Key(EVERY, "Interval at which the configs and ACLs of both clusters are compared.", name="every")
    ] = 5_000
    filter_configs: Annotated[
        str, Key(CONFIG_FILTER, "Policy that can exclude further configs from the sync.", unset="none")
    ] = ""
    filter_settings: Annotated[
        PolicySettings, Key(settings_of("filter_configs"), "Arguments of the policy in `filter_configs`.")
    ] = {}

    def below(self, folder: Path) -> "SyncConfig":
        """Return the same settings, with relative paths of secrets resolved against this folder."""
        return msgspec.structs.replace(self, filter_settings=settings_below(self.filter_settings, folder))

    @property
    def acls_mode(self) -> AclsMode:
        """Return which ACLs are synced."""
        return self.acls or "off"


class HeartbeatsConfig(msgspec.Struct, frozen=True):
    """Heartbeats as MirrorMaker 2 writes them: records in the topic `heartbeats`, which a flow copies like any other
    topic."""

    emit: Annotated[
        EmitOn,
        Key(
            one_of(EmitOn),
            'Cluster to which heartbeats are written. `"target"`: they name this flow. `"source"`: they name the '
            "opposite flow. This flow copies them, so that consumers on the target can see that the flow works. This "
            'requires permission to write to the source. `"both"`: both clusters. `"off"`: none.',
        ),
    ] = "target"
    every_ms: Annotated[int, Key(EVERY, "Interval at which heartbeats are written.", name="every")] = 1_000
    replicate: Annotated[
        bool, Key(BOOLEAN, "Whether heartbeats topics are copied, even if `topics` and `exclude` do not select them.")
    ] = True
    replication_factor: Annotated[
        InternalFactor,
        Key(_FACTOR, "Replication factor of the topic `heartbeats`, if mirrord creates it."),
    ] = "broker"


class Mm2RecordsConfig(msgspec.Struct, frozen=True):
    """Records that mirrord writes for MirrorMaker 2's clients (RemoteClusterUtils, MirrorClient, the formatters)."""

    checkpoints: Annotated[
        bool,
        Key(
            BOOLEAN,
            "Whether checkpoints are written. Checkpoints contain the positions of groups, and are written to "
            "`<source>.checkpoints.internal`.",
        ),
    ] = True
    checkpoints_every_ms: Annotated[
        int, Key(EVERY, "Interval at which checkpoints that have changed are written.", name="checkpoints_every")
    ] = 1_000
    checkpoints_replication_factor: Annotated[
        InternalFactor, Key(_FACTOR, "Replication factor of the checkpoints topic, if mirrord creates it.")
    ] = "broker"
    offset_syncs: Annotated[
        OffsetSyncsOn,
        Key(
            one_of(OffsetSyncsOn),
            'Cluster that holds the topic `mm2-offset-syncs.<other cluster>.internal`. With `"source"`, mirrord needs '
            'permission to write to the source. `"off"`: no offset syncs are written.',
        ),
    ] = "target"
    offset_syncs_replication_factor: Annotated[
        InternalFactor, Key(_FACTOR, "Replication factor of the offset syncs topic, if mirrord creates it.")
    ] = "broker"
    offset_lag_max: Annotated[
        int,
        Key(
            number(0, 2**63 - 1),
            "Number of copied records in a partition after which a new pair of offsets is written. A partition's pairs "
            "are written at most once a second.",
        ),
    ] = 100
    separator: Annotated[
        str,
        Key(SEPARATOR, "Separator between the parts of the names of these topics, such as `eu.checkpoints.internal`."),
    ] = "."


class FromMm2Config(msgspec.Struct, frozen=True):
    """How mirrord takes over copies that MirrorMaker 2 has made.

    These keys apply to partitions that mirrord has not copied yet and whose target partitions already hold records.
    """

    takeover: Annotated[
        Mm2TakeoverMode,
        Key(
            one_of(Mm2TakeoverMode),
            'Where copying begins. `"verify"`: at the position that MirrorMaker 2 recorded, after the last records in '
            'the target have been compared with the source. `"trust"`: at that position, without a comparison. '
            '`"off"`: as for any other topic.',
        ),
    ] = "verify"
    offsets_topic: Annotated[
        str | None,
        Key(
            _TOPIC_NAME,
            "Topic on the target cluster in which MirrorMaker 2 recorded its positions.",
            unset="`mm2-offsets.<source>.internal`",
        ),
    ] = None
    workers_group: Annotated[
        str | None,
        Key(
            TEXT,
            "Group of MirrorMaker 2's workers on the target. While the group has members, MirrorMaker 2 is still "
            "copying, and mirrord waits.",
            unset="`<source>-mm2`",
        ),
    ] = None
    verify_records: Annotated[
        int,
        Key(
            number(1, 1_000_000),
            "Number of records at the end of each target partition that are compared with the source.",
        ),
    ] = 10_000


class RecordsConfig(msgspec.Struct, frozen=True):
    """Policies that filter or change records.

    If a topic has a filter or a transform, it is copied record by record instead of in whole batches.
    """

    topics: Annotated[tuple[str, ...], Key(REGEXES, "Source topics to which the policies apply.")] = (".*",)
    filter: Annotated[
        str, Key(RECORD_FILTER, "Policy that decides which records are copied.", unset="all records are copied")
    ] = ""
    filter_settings: Annotated[PolicySettings, Key(settings_of("filter"), "Arguments of the policy in `filter`.")] = {}
    transform: Annotated[
        str, Key(RECORD_TRANSFORM, "Policy that changes records.", unset="records are copied unchanged")
    ] = ""
    transform_settings: Annotated[
        PolicySettings, Key(settings_of("transform"), "Arguments of the policy in `transform`.")
    ] = {}
    on_error: Annotated[
        OnError,
        Key(
            one_of(OnError),
            'What happens if a policy raises an exception or returns an invalid result for a record. `"halt"`: the '
            'lane halts before the record. `"reject"`: the lane skips the record with the verdict `rejected`, and '
            "continues with the next one.",
        ),
    ] = "halt"

    def below(self, folder: Path) -> "RecordsConfig":
        """Return the same settings, with relative paths of secrets resolved against this folder."""
        return msgspec.structs.replace(
            self,
            filter_settings=settings_below(self.filter_settings, folder),
            transform_settings=settings_below(self.transform_settings, folder),
        )

    @property
    def is_on(self) -> bool:
        """Whether any policy is configured."""
        return bool(self.filter or self.transform)
