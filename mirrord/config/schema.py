"""Declares the keys of a conf.toml as frozen structs. A key that the user does not set has its default value."""

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, cast

import msgspec

from mirrord.config.fault_text import closest_name
from mirrord.config.flow_features import (
    EVERY,
    MONTH_MS,
    REFRESH,
    SEPARATOR,
    FromMm2Config,
    GroupsConfig,
    HeartbeatsConfig,
    Mm2RecordsConfig,
    RecordsConfig,
    SyncConfig,
)
from mirrord.config.http import HttpConfig
from mirrord.config.jobs import AuditConfig, CompactConfig, DrillConfig
from mirrord.config.key_declarations import Key
from mirrord.config.ledger import LedgerConfig
from mirrord.config.limits import LimitsConfig
from mirrord.config.policy_names import NAMING, SELECTION, PolicySettings, settings_of
from mirrord.config.recovery import RecoveryConfig
from mirrord.config.security import Secret, Security, settings_below
from mirrord.config.toml_format import format_text
from mirrord.config.value_kinds import (
    BOOLEAN,
    REGEXES,
    START,
    TEXT,
    TableKind,
    ValueKind,
    duration,
    either,
    number,
    one_of,
)
from mirrord.config.value_parsers import HostPort, StartPoint, host_port, regex, start_point, text
from mirrord.model.errors import ConfigError
from mirrord.model.names import Alias

NamingSetting = str
"""`prefix`, `identity`, a template such as `dr-{topic}`, or a third-party policy: see `mirrord.config.policy_names`."""
Isolation = Literal["read_committed", "read_uncommitted"]
OnLoss = Literal["continue", "halt"]
"""What a lane does if the source has lost records: continue after them, or halt."""
OnReject = Literal["halt", "skip", "skip-unparked"]
OnDeletedCopy = Literal["create", "halt"]
OnRecreated = Literal["keep", "fresh"]
OnUnknownCopies = Literal["wait", "begin"]
EngineKind = Literal["ray", "process"]
Placement = Literal["balanced", "spread"]

ReplicationFactor = int | Literal["broker", "source"]

ALIAS = re.compile(r"[A-Za-z0-9_-]{1,64}")
ALIAS_RULE = 'up to 64 letters, digits, "_" and "-"'
CLUSTER = ValueKind(text, "the alias of a `[clusters.ALIAS]` table")
"""The kind of a key that names a cluster. The loader replaces it with one that accepts only aliases in the file."""
_ALARM_AFTER = duration(1_000, MONTH_MS)
_AUTO_OR_COUNT = either("auto", number(1, 10_000))
_LEASE = duration(1_000, 300_000)
_DAY_MS = 86_400_000


def _names(pattern: re.Pattern[str], length: int) -> ValueKind:
    def convert(found: object) -> str:
        if not isinstance(found, str) or not pattern.fullmatch(found):
            raise ValueError('a name of letters, digits, "_" and "-"')
        return found

    return ValueKind(convert, f"up to {length} letters, digits, `_` and `-`")


def _bootstrap(found: object) -> tuple[str, ...]:
    rule = 'addresses such as "kafka1:9092,kafka2:9092"'
    if not isinstance(found, str):
        raise ValueError(rule)
    try:
        return tuple(str(host_port(part.strip())) for part in found.split(","))
    except ValueError:
        raise ValueError(rule) from None


_BOOTSTRAP = ValueKind(
    _bootstrap,
    'addresses such as `"kafka1:9092,kafka2:9092"`',
    lambda addresses: format_text(",".join(addresses)),
    stand_in=(),
)


class ClusterConfig(msgspec.Struct, frozen=True):
    """A Kafka cluster. Flows refer to it by its alias."""

    bootstrap: Annotated[
        tuple[str, ...], Key(_BOOTSTRAP, "Addresses of some brokers. mirrord uses these to find all other brokers.")
    ]
    security: Security
    ledger: LedgerConfig | None = None
    """The `[ledger]` of the file, which is the same for all clusters. It is not a key of the cluster."""

    def below(self, folder: Path, ledger: LedgerConfig | None) -> "ClusterConfig":
        """Return the cluster with these keys of ledgers, and relative paths of secrets resolved against this folder."""
        return msgspec.structs.replace(self, security=self.security.below(folder), ledger=ledger)


class FlowConfig(msgspec.Struct, frozen=True):
    """A directed pair of clusters, with its settings. A regex that selects topics must match the whole topic name."""

    name: Annotated[
        str,
        Key(
            _names(re.compile(r"[A-Za-z0-9_-]{1,129}"), 129),
            "Name of the flow. Its ledger on the target cluster is `mirrord.<name>.ledger`.",
            unset="`<from>-<to>`",
        ),
    ]
    source: Annotated[Alias, Key(CLUSTER, "Cluster to copy from.", name="from")]
    target: Annotated[Alias, Key(CLUSTER, "Cluster to copy to.", name="to")]
    topics: Annotated[tuple[str, ...], Key(REGEXES, "Topics to copy. Kafka's internal topics are never copied.")]
    exclude: Annotated[tuple[str, ...], Key(REGEXES, "Topics that are not copied, even if `topics` selects them.")] = ()
    select: Annotated[str, Key(SELECTION, "Policy that can exclude further topics.", unset="none")] = ""
    select_settings: Annotated[PolicySettings, Key(settings_of("select"), "Arguments of the policy in `select`.")] = {}
    naming: Annotated[
        NamingSetting,
        Key(
            NAMING,
            'How target topics are named. `"prefix"`: the alias of the source, `separator` and the name of the source '
            'topic. `"identity"`: the name of the source topic.',
        ),
    ] = "prefix"
    naming_settings: Annotated[PolicySettings, Key(settings_of("naming"), "Arguments of the policy in `naming`.")] = {}
    separator: Annotated[
        str, Key(SEPARATOR, "Separator between the alias and the topic in target topic names such as `eu.orders`.")
    ] = "."
    start: Annotated[
        StartPoint,
        Key(
            START,
            "Where copying begins in the partitions that exist when the configuration first selects their topic. "
            "Partitions that are created later are copied from their first record.",
        ),
    ] = "earliest"
    start_of: Annotated[
        dict[str, StartPoint],
        Key(
            TableKind(start_point, "a table such as `{ 'logs\\..*' = \"latest\" }`", read_name=regex),
            "Replaces `start` for topics that match a regular expression. The first expression that matches applies.",
        ),
    ] = {}
    isolation: Annotated[
        Isolation,
        Key(
            one_of(Isolation),
            "Kafka's `isolation.level`: whether to wait for open transactions and omit aborted records.",
        ),
    ] = "read_committed"
    on_loss: Annotated[
        OnLoss,
        Key(
            one_of(OnLoss),
            'What a lane does if the source has lost records, whether they were copied or not. `"continue"`: the lane '
            'continues after these records and reports the loss. `"halt"`: the lane halts.',
        ),
    ] = "continue"
    on_reject: Annotated[
        OnReject,
        Key(
            one_of(OnReject),
            'What happens if the target refuses a record because of its contents. `"halt"`: the partition waits for '
            'an operator\'s decision. `"skip"`: the record is parked in `mirrord.<name>.dead` and skipped. '
            '`"skip-unparked"`: the record is skipped even if it cannot be parked.',
        ),
    ] = "halt"
    rpo_ms: Annotated[
        int | None,
        Key(
            _ALARM_AFTER,
            "Recovery point objective: maximum time lag of the target. Status, metrics and alerts report violations.",
            name="rpo",
            unset="no objective",
        ),
    ] = None
    transaction_alarm_ms: Annotated[
        int,
        Key(
            _ALARM_AFTER,
            "After waiting this long for an open transaction on the source, a lane reports the transaction's producer.",
            name="transaction_alarm",
        ),
    ] = 60_000
    refresh_ms: Annotated[
        int | None,
        Key(
            REFRESH,
            'Interval at which mirrord looks for new topics and partitions. `"never"`: only when the daemon starts.',
            name="refresh",
        ),
    ] = 5_000
    replication_factor: Annotated[
        ReplicationFactor,
        Key(
            either("source", either("broker", number(1, 32_767))),
            'Replication factor of the target topics that mirrord creates. `"broker"`: the target\'s '
            '`default.replication.factor`. `"source"`: that of the source topic.',
        ),
    ] = "broker"
    on_deleted_copy: Annotated[
        OnDeletedCopy,
        Key(
            one_of(OnDeletedCopy),
            'What happens if a client deletes a target topic that holds copies. `"create"`: mirrord recreates the '
            'topic and copies it again. `"halt"`: mirrord copies it again only after an operator has recreated it.',
        ),
    ] = "create"
    on_recreated: Annotated[
        OnRecreated,
        Key(
            one_of(OnRecreated),
            'What happens if a source topic is deleted and re-created. `"keep"`: new records are appended to the '
            'same target topic. `"fresh"`: new records are copied to a separate target topic, such as `eu.orders.2`.',
        ),
    ] = "keep"
    on_unknown_copies: Annotated[
        OnUnknownCopies,
        Key(
            one_of(OnUnknownCopies),
            'What happens if the target holds copies that are unknown to the ledger. `"wait"`: the partition waits '
            'for `mirrord rebuild`. `"begin"`: the partition begins as if the target did not hold these copies.',
        ),
    ] = "wait"
    propagate_deletes: Annotated[
        bool,
        Key(
            BOOLEAN,
            "Whether a target topic that mirrord created is deleted after its source topic has been deleted.",
        ),
    ] = False
    delete_grace_ms: Annotated[int, Key(EVERY, "Delay before a topic is deleted.", name="delete_grace")] = _DAY_MS
    groups: GroupsConfig = GroupsConfig()
    records: RecordsConfig = RecordsConfig()
    sync: SyncConfig = SyncConfig()
    heartbeats: HeartbeatsConfig = HeartbeatsConfig()
    mm2_records: Mm2RecordsConfig = Mm2RecordsConfig()
    from_mm2: FromMm2Config = FromMm2Config()
    limits: LimitsConfig = LimitsConfig()
    recovery: RecoveryConfig = RecoveryConfig()
    archive: str | None = None
    """The `path` of `[compact]`, which is the same for all flows in the file. It is not a key of the flow."""

    def below(self, folder: Path, archive: str | None) -> "FlowConfig":
        """Return the flow with its archive at this path, and relative paths of secrets resolved against this folder."""
        return msgspec.structs.replace(
            self, archive=archive,
            select_settings=settings_below(self.select_settings, folder),
            naming_settings=settings_below(self.naming_settings, folder),
            sync=self.sync.below(folder),
            records=self.records.below(folder),
        )  # fmt: skip

    @property
    def default_name(self) -> str:
        """The name of the flow if the file does not set one."""
        return f"{self.source}-{self.target}"

    def start_at(self, topic: str) -> StartPoint:
        """Return where copying begins in a partition of this source topic from which nothing has been copied yet."""
        for pattern, start in self.start_of.items():
            if re.fullmatch(pattern, topic):
                return start
        return self.start

    @property
    def follows_groups(self) -> bool:
        """Whether positions of groups are translated, either to commit them or to write MirrorMaker 2 checkpoints."""
        return self.groups.mode != "off" or self.groups.reverse or self.mm2_records.checkpoints


class ReplicatorsConfig(msgspec.Struct, frozen=True):
    """How many replicators each flow has, and which lanes they host."""

    count: Annotated[
        int | Literal["auto"],
        Key(
            _AUTO_OR_COUNT,
            'Number of replicators for each flow. `"auto"`: one per core of the Ray cluster, or a single one with '
            '`engine = "process"`.',
        ),
    ] = "auto"
    partitions_per_replicator: Annotated[
        int | Literal["auto"],
        Key(
            _AUTO_OR_COUNT,
            "Maximum number of partitions that one replicator hosts. With 1, each partition has its own replicator. "
            '`"auto"`: no limit.',
        ),
    ] = "auto"
    placement: Annotated[
        Placement,
        Key(
            one_of(Placement),
            'Lanes are distributed by the bytes that they copy (`"balanced"`), or by their number (`"spread"`).',
        ),
    ] = "balanced"
    alone: Annotated[
        tuple[str, ...],
        Key(REGEXES, "Partitions that get a dedicated replicator. The regexes match names such as `orders-0`."),
    ] = ()
    spares: Annotated[int, Key(number(0, 100), "Number of idle replicators that replace dead ones.")] = 0


class RuntimeConfig(msgspec.Struct, frozen=True):
    """The engine of the replicators, and timeouts. A takeover usually waits at most `lease_ttl` + `request_timeout`."""

    engine: Annotated[
        EngineKind, Key(one_of(EngineKind), "Whether replicators are Ray actors, or tasks in the daemon's process.")
    ] = "ray"
    lease_ttl_ms: Annotated[
        int, Key(_LEASE, "Time after which a lease expires if it is not renewed.", name="lease_ttl")
    ] = 6_000
    request_timeout_ms: Annotated[
        int, Key(_LEASE, "Time after which a request to a broker fails.", name="request_timeout")
    ] = 8_000


class RayConfig(msgspec.Struct, frozen=True):
    """The Ray cluster on which mirrord runs if `engine` is `"ray"`."""

    address: Annotated[
        str, Key(TEXT, '`"local"` starts a Ray cluster on this machine. Otherwise, the address of a cluster to join.')
    ] = "local"
    dashboard: Annotated[bool, Key(BOOLEAN, "Whether a Ray cluster that mirrord starts runs Ray's dashboard.")] = True
    dashboard_port: Annotated[
        int | None,
        Key(number(1, 65_535), "Port of the dashboard.", unset="Ray's default port, or the next free one"),
    ] = None


class LogsConfig(msgspec.Struct, frozen=True):
    """Where a daemon writes its log files. The files are rotated."""

    directory: Annotated[
        str | None, Key(TEXT, "Folder of the logs.", name="dir", unset="the user's state directory")
    ] = None


class Config(msgspec.Struct, frozen=True):
    """The contents of a conf.toml."""

    clusters: dict[Alias, ClusterConfig]
    flows: tuple[FlowConfig, ...]
    elsewhere: tuple[FlowConfig, ...] = ()
    """Flows in the same file that this daemon does not run because other daemons run them."""
    instance: Annotated[
        str,
        Key(
            _names(ALIAS, 64),
            "Name of the daemon. It distinguishes two daemons that share a Ray cluster or a machine.",
        ),
    ] = "mirrord"
    replicators: ReplicatorsConfig = ReplicatorsConfig()
    runtime: RuntimeConfig = RuntimeConfig()
    ray: RayConfig = RayConfig()
    http: HttpConfig = HttpConfig()
    logs: LogsConfig = LogsConfig()
    audit: AuditConfig = AuditConfig()
    compact: CompactConfig = CompactConfig()
    drill: DrillConfig = DrillConfig()
    ledger: LedgerConfig = LedgerConfig()

    @property
    def all_flows(self) -> tuple[FlowConfig, ...]:
        """The flows that this daemon runs, and the flows in the same file that other daemons run."""
        return self.flows + self.elsewhere

    def only(self, flows: Sequence[FlowConfig]) -> "Config":
        """Return the configuration with only these flows.

        All other flows are kept in `elsewhere`, because checks between flows need them.
        """
        chosen = {flow.name for flow in flows}
        others = tuple(flow for flow in self.flows if flow.name not in chosen)
        return msgspec.structs.replace(self, flows=tuple(flows), elsewhere=(*self.elsewhere, *others))

    def flow(self, name: str) -> FlowConfig:
        """Return the flow with this name. If there is none, raise ConfigError and suggest the most similar name."""
        for flow in self.flows:
            if flow.name == name:
                return flow
        names = [flow.name for flow in self.flows]
        like = closest_name(name, names)
        hint = f' Did you mean "{like}"?' if like else ""
        raise ConfigError(f'no flow "{name}" in the configuration; there are: {", ".join(names)}.{hint}')

    def only_targets(self, names: Sequence[str]) -> "Config":
        """Return the configuration with only the flows into these clusters. Heartbeats that these flows send to other
        clusters are switched off, so that the flows write only to the named clusters.

        A name may be a comma-separated list. Raises ConfigError if a cluster does not exist, or if no flow is left.
        """
        wanted = [alias.strip() for name in names for alias in name.split(",") if alias.strip()]
        for alias in wanted:
            if alias not in self.clusters:
                like = closest_name(alias, self.clusters)
                hint = f' Did you mean "{like}"?' if like else ""
                raise ConfigError(f'no cluster "{alias}" has a flow; there are: {", ".join(self.clusters)}.{hint}')
        flows = tuple(_writing_only(flow, wanted) for flow in self.flows if flow.target in wanted)
        if not flows:
            targets = ", ".join(dict.fromkeys(flow.target for flow in self.flows))
            raise ConfigError(f"no flow into {', '.join(wanted) or 'no cluster'}; there are flows into: {targets}")
        return self.only(flows)

    def chosen(self, clusters: Sequence[str], flows: Sequence[str]) -> "Config":
        """Return the configuration with only the flows that `--clusters` and `--flow` select. Without a value, an
        option selects all flows. Raises ConfigError if a name does not exist."""
        config = self.only_targets(clusters) if clusters else self
        return config.only(tuple(config.flow(name) for name in dict.fromkeys(flows))) if flows else config

    def below(self, folder: Path) -> "Config":
        """Return the configuration with relative paths resolved against this folder.

        Other processes with different working directories also use these paths.
        """
        directory, path = self.logs.directory, self.compact.path
        archive, ledger = str(folder / path) if path else None, self.ledger.below(folder)
        keys = ledger if ledger != LedgerConfig() else None
        return msgspec.structs.replace(
            self,
            clusters={alias: cluster.below(folder, keys) for alias, cluster in self.clusters.items()},
            ledger=ledger,
            http=self.http.below(folder),
            logs=LogsConfig(directory=str(folder / directory) if directory else None),
            audit=msgspec.structs.replace(
                self.audit,
                out=str(folder / self.audit.out) if self.audit.out else None,
                spark=settings_below(self.audit.spark, folder),
            ),
            compact=msgspec.structs.replace(
                self.compact, path=archive, spark=settings_below(self.compact.spark, folder)
            ),
            flows=tuple(flow.below(folder, archive) for flow in self.flows),
            elsewhere=tuple(flow.below(folder, archive) for flow in self.elsewhere),
        )

    def describe(self) -> dict[str, object]:
        """Return the configuration as plain values for JSON, with `***` in place of every secret."""
        return {name: plain(getattr(self, name)) for name in self.__struct_fields__}


def _writing_only(flow: FlowConfig, aliases: Sequence[Alias]) -> FlowConfig:
    """Return the flow. If its source is not one of these clusters, turn off the heartbeats that it writes there."""
    if flow.source in aliases or flow.heartbeats.emit in {"target", "off"}:
        return flow
    emit = "target" if flow.heartbeats.emit == "both" else "off"
    return msgspec.structs.replace(flow, heartbeats=msgspec.structs.replace(flow.heartbeats, emit=emit))


def plain(value: object, *, with_references: bool = False) -> object:
    """Return a configuration, or a part of it, as plain values for JSON, with `***` in place of every secret, or with
    the references to the secrets."""
    if isinstance(value, Secret):
        return value.reference if with_references else str(value)
    if isinstance(value, HostPort):
        return str(value)
    inner = partial(plain, with_references=with_references)
    if isinstance(value, msgspec.Struct):
        return {name: inner(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {name: inner(item) for name, item in cast(dict[str, object], value).items()}
    if isinstance(value, tuple):
        return [inner(item) for item in cast(tuple[object, ...], value)]
    return value
