"""The tasks of a flow besides copying records.

These are syncing groups, topic configs and ACLs, and writing heartbeats and records for Kafka's own tools. Each struct
is one table of a flow in conf.toml. Regexes match whole names.
"""

import re
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
"""An interval of polling. With "never", only what is found when the daemon starts is used."""
_FACTOR = either("broker", number(1, 32_767))
_SEPARATOR = re.compile(r"[A-Za-z0-9._-]{1,16}")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def topic_name(found: object) -> str:
    """Return a topic name if it is valid. Raises ValueError."""
    if not isinstance(found, str) or not _TOPIC.fullmatch(found):
        raise ValueError('a topic: up to 249 letters, digits, ".", "_" and "-"')
    return found


def separator(found: object) -> str:
    """Return a separator for the parts of a topic's name if it is valid. Raises ValueError."""
    if not isinstance(found, str) or not _SEPARATOR.fullmatch(found):
        raise ValueError('up to 16 letters, digits, ".", "_" and "-", such as "." or "__"')
    return found


SEPARATOR = ValueKind(separator, "up to 16 letters, digits, `.`, `_` and `-`")
_TOPIC_NAME = ValueKind(topic_name, "a topic name")


class GroupsConfig(msgspec.Struct, frozen=True):
    """Which consumer groups are synced, and how."""

    match: Annotated[tuple[str, ...], Key(REGEXES, "Consumer groups to sync.")] = (".*",)
    exclude: Annotated[tuple[str, ...], Key(REGEXES, "Groups that `match` selects and that are not synced.")] = (
        UNWANTED_GROUPS
    )
    mode: Annotated[
        GroupsMode,
        Key(
            one_of(GroupsMode),
            'Direction of the sync. `"follow"`: the target follows the source, also backward. `"forward-only"`: never '
            'backward. `"off"`: no sync.',
        ),
    ] = "follow"
    every_ms: Annotated[
        int,
        Key(EVERY, "Maximum time within which a commit at the source is translated to the target.", name="every"),
    ] = 1_000
    refresh_ms: Annotated[
        int | None,
        Key(
            REFRESH,
            'Interval at which new groups are looked for. `"never"`: only when the daemon starts.',
            name="refresh",
        ),
    ] = 5_000
    reverse: Annotated[
        bool,
        Key(
            BOOLEAN,
            "Whether groups that move on at the target are also followed at the source, to prepare a failback. mirrord "
            "then commits at the source.",
        ),
    ] = False
    both_ways: Annotated[
        bool,
        Key(
            BOOLEAN,
            "Set this in one of two flows that copy the same topics to each other under the same names. Positions then "
            "count the records of both sides.",
        ),
    ] = False


class SyncConfig(msgspec.Struct, frozen=True):
    """Which properties of a topic, besides its records, are kept in sync with the source."""

    configs: Annotated[bool, Key(BOOLEAN, "Whether topic configs are synced.")] = True
    exclude_configs: Annotated[
        tuple[str, ...],
        Key(
            REGEXES,
            "Topic configs that are left unchanged at the target. Those of tiered storage are never synced either.",
        ),
    ] = UNWANTED_CONFIGS
    use_defaults_from: Annotated[
        DefaultsFrom,
        Key(
            one_of(DefaultsFrom),
            'What happens to a config that the source has at its default. `"target"`: it is removed at the target, '
            'whose default then applies. `"source"`: it is set to the source\'s value.',
        ),
    ] = "target"
    acls: Annotated[
        AclsMode,
        Key(
            one_of(AclsMode),
            'Which ACLs are synced. `"read-only"`: those that allow reading, never those that allow writing. '
            '`"exact"`: all of them, including removals. `"off"`: none.',
        ),
    ] = "read-only"
    every_ms: Annotated[
        int, Key(EVERY, "Interval at which configs and ACLs of both clusters are compared.", name="every")
    ] = 5_000
    filter_configs: Annotated[
        str, Key(CONFIG_FILTER, "Policy that excludes more configs from syncing.", unset="none")
    ] = ""
    filter_settings: Annotated[
        PolicySettings, Key(settings_of("filter_configs"), "Arguments of `filter_configs`.")
    ] = {}


class HeartbeatsConfig(msgspec.Struct, frozen=True):
    """MirrorMaker 2's heartbeats: records in a topic `heartbeats`, which a flow copies like any other topic."""

    emit: Annotated[
        EmitOn,
        Key(
            one_of(EmitOn),
            "Cluster to which heartbeats are written. At the target they name the flow. At the source they name the "
            "opposite flow, so that this flow copies them and consumers of the target see that it is alive; mirrord "
            "then needs permission to write at the source.",
        ),
    ] = "target"
    every_ms: Annotated[int, Key(EVERY, "Interval at which heartbeats are written.", name="every")] = 1_000
    replicate: Annotated[
        bool, Key(BOOLEAN, "Whether heartbeats topics are copied, whatever `topics` and `exclude` say.")
    ] = True
    replication_factor: Annotated[
        InternalFactor,
        Key(_FACTOR, "Replication factor of the topic `heartbeats`, if mirrord creates it."),
    ] = "broker"


class Mm2RecordsConfig(msgspec.Struct, frozen=True):
    """The records that MirrorMaker 2's clients (RemoteClusterUtils, MirrorClient, the formatters) read."""

    checkpoints: Annotated[
        bool,
        Key(BOOLEAN, "Whether checkpoints are written: the positions of groups, in `<source>.checkpoints.internal`."),
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
            "Cluster that holds the topic `mm2-offset-syncs.<other cluster>.internal`. At the source, mirrord needs "
            "permission to write there.",
        ),
    ] = "target"
    offset_syncs_replication_factor: Annotated[
        InternalFactor, Key(_FACTOR, "Replication factor of the offset syncs topic, if mirrord creates it.")
    ] = "broker"
    offset_lag_max: Annotated[
        int,
        Key(
            number(0, 2**63 - 1),
            "Number of records after which a pair of offsets is written, but not more often than once a second.",
        ),
    ] = 100
    separator: Annotated[
        str, Key(SEPARATOR, "Separator between the parts of these topics' names, such as `eu.checkpoints.internal`.")
    ] = "."


class FromMm2Config(msgspec.Struct, frozen=True):
    """Continuation of MirrorMaker 2's copies.

    It applies to partitions that mirrord has not copied before and whose target has records.
    """

    takeover: Annotated[
        Mm2TakeoverMode,
        Key(
            one_of(Mm2TakeoverMode),
            'Where copying begins. `"verify"`: at the position that MirrorMaker 2 recorded, once the end of the target '
            'matches the source. `"trust"`: at that position, without a comparison. `"off"`: as for any other topic.',
        ),
    ] = "verify"
    offsets_topic: Annotated[
        str | None,
        Key(
            _TOPIC_NAME,
            "Topic of the target cluster in which MirrorMaker 2 recorded its position.",
            unset="`mm2-offsets.<source>.internal`",
        ),
    ] = None
    workers_group: Annotated[
        str | None,
        Key(
            TEXT,
            "Group of MirrorMaker 2's workers at the target. While it has members, MirrorMaker 2 is still copying.",
            unset="`<source>-mm2`",
        ),
    ] = None
    verify_records: Annotated[
        int,
        Key(number(1, 1_000_000), "Number of the target's last records that are compared in each partition."),
    ] = 10_000


class RecordsConfig(msgspec.Struct, frozen=True):
    """Policies that inspect records.

    Topics to which they apply are copied record by record instead of in whole batches.
    """

    topics: Annotated[tuple[str, ...], Key(REGEXES, "Source topics to which the policies apply.")] = (".*",)
    filter: Annotated[
        str, Key(RECORD_FILTER, "Policy that decides which records are copied.", unset="all records are copied")
    ] = ""
    filter_settings: Annotated[PolicySettings, Key(settings_of("filter"), "Arguments of `filter`.")] = {}
    transform: Annotated[
        str, Key(RECORD_TRANSFORM, "Policy that changes records.", unset="records are copied unchanged")
    ] = ""
    transform_settings: Annotated[PolicySettings, Key(settings_of("transform"), "Arguments of `transform`.")] = {}
    on_error: Annotated[
        OnError,
        Key(
            one_of(OnError),
            "What happens to a record for which a policy has no answer: the lane halts before it, or rejects it and "
            "continues with the next one.",
        ),
    ] = "halt"

    @property
    def is_on(self) -> bool:
        """Whether there is any policy."""
        return bool(self.filter or self.transform)
