"""conf.toml as frozen structs: the user's settings, with every default filled in."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, cast

import msgspec

from mirrord.config.flow_features import (
    FromMm2Config,
    GroupsConfig,
    HeartbeatsConfig,
    Mm2RecordsConfig,
    RecordsConfig,
    SyncConfig,
)
from mirrord.config.jobs import AuditConfig, CompactConfig
from mirrord.config.policy_names import PolicySettings
from mirrord.config.security import Secret, Security
from mirrord.config.toml_reader import nearest
from mirrord.config.units import HostPort, Start
from mirrord.model.errors import ConfigError
from mirrord.model.names import Alias

Naming = str
"""`prefix`, `identity`, a template such as `dr-{topic}`, or a third-party policy (`mirrord.config.policy_names`)."""
Isolation = Literal["read_committed", "read_uncommitted"]
OnLoss = Literal["continue", "halt"]
"""What a lane does if the source no longer holds records that were not copied: continue after them, or halt."""
OnReject = Literal["halt", "skip", "skip-unparked"]
OnDeletedCopy = Literal["create", "halt"]
OnRecreated = Literal["keep", "fresh"]
OnUnknownCopies = Literal["wait", "begin"]
Engine = Literal["ray", "process"]

ALIAS = re.compile(r"[A-Za-z0-9_-]{1,64}")
ALIAS_RULE = 'up to 64 letters, digits, "_" and "-"'
ReplicationFactor = int | Literal["broker", "source"]


class ClusterConfig(msgspec.Struct, frozen=True):
    """One Kafka cluster: its bootstrap addresses as host:port strings, and how to authenticate."""

    bootstrap: tuple[str, ...]
    security: Security


class LimitsConfig(msgspec.Struct, frozen=True):
    """Resource limits of a process for one flow."""

    in_flight_bytes: int = 64 << 20
    """Bytes fetched or produced and not yet acknowledged, per replicator. This is the hard limit of its memory for
    records.
    """
    map_bytes: int = 64 << 20
    """Memory for the offset map in each process that has it. Older parts are kept in a temporary file."""
    rate_bytes_per_s: int | None = None
    """Fetch rate of the whole flow, shared equally by its replicators that hold lanes. None means unlimited."""


class FlowConfig(msgspec.Struct, frozen=True):
    """A directed pair of clusters, and what is copied how. Topics are selected by regexes that match the whole name."""

    name: str
    source: Alias
    target: Alias
    topics: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    select: str = ""
    """A third-party policy that excludes more topics, or an empty string."""
    select_settings: PolicySettings = {}
    naming: Naming = "prefix"
    naming_settings: PolicySettings = {}
    separator: str = "."
    """Separator between alias and topic in names that carry the alias."""
    start: Start = "earliest"
    start_of: dict[str, Start] = {}
    """Start of topics that match a regex, instead of `start`. The first regex that matches counts."""
    isolation: Isolation = "read_committed"
    on_loss: OnLoss = "continue"
    on_reject: OnReject = "halt"
    """What happens if a record cannot be copied because of its contents: the lane waits for an operator's decision, or
    skips the record.
    """
    rpo_ms: int | None = None
    """How far the target may lag. Status, metrics and alerts report when it lags further. None means that there is no
    objective.
    """
    transaction_alarm_ms: int = 60_000
    """A lane that waits longer than this for one open transaction of the source reports the transaction."""
    refresh_ms: int | None = 5_000
    """Interval at which new topics and partitions are looked for. None means never."""
    replication_factor: ReplicationFactor = "broker"
    """Replication factor of the target topics that mirrord creates. "broker" leaves it to the target's
    `default.replication.factor`; "source" takes that of the source topic.
    """
    on_deleted_copy: OnDeletedCopy = "create"
    """What happens if a target topic that holds copies was deleted: it is created and copied again, or an operator
    decides.
    """
    on_recreated: OnRecreated = "keep"
    """What happens if a source topic was recreated: its records follow those of the former topic in the same target
    topic, or the new topic gets a separate target topic.
    """
    on_unknown_copies: OnUnknownCopies = "wait"
    """What happens if the target holds records of the source that are not in the ledger: the partition waits for an
    operator's decision, or copying begins as if they did not exist.
    """
    propagate_deletes: bool = False
    """Whether a topic that is deleted at the source is also deleted at the target, if mirrord created it there."""
    delete_grace_ms: int = 86_400_000
    """Delay between the two deletions."""
    groups: GroupsConfig = GroupsConfig()
    records: RecordsConfig = RecordsConfig()
    sync: SyncConfig = SyncConfig()
    heartbeats: HeartbeatsConfig = HeartbeatsConfig()
    mm2_records: Mm2RecordsConfig = Mm2RecordsConfig()
    from_mm2: FromMm2Config = FromMm2Config()
    limits: LimitsConfig = LimitsConfig()
    archive: str | None = None
    """The folder of `[compact]`, which is the same for the whole file."""

    def start_at(self, topic: str) -> Start:
        """Return where copying begins for a partition of a source topic that was never copied."""
        for pattern, start in self.start_of.items():
            if re.fullmatch(pattern, topic):
                return start
        return self.start

    @property
    def follows_groups(self) -> bool:
        """Whether positions of groups are translated, either to commit them or to write MirrorMaker 2's checkpoints."""
        return self.groups.mode != "off" or self.groups.reverse or self.mm2_records.checkpoints


class ReplicatorsConfig(msgspec.Struct, frozen=True):
    """How many replicators each flow has, and which lanes they host."""

    count: int | Literal["auto"] = "auto"
    partitions_per_replicator: int | Literal["auto"] = "auto"
    """Upper limit. A value of 1 gives one replicator per partition."""
    placement: Literal["balanced", "spread"] = "balanced"
    """Measure by which lanes are distributed: the bytes that they copy, or their number."""
    alone: tuple[str, ...] = ()
    """Regexes that match whole names such as `orders-0`: partitions that get a dedicated replicator."""
    spares: int = 0
    """Number of replicators that host nothing until another one dies."""


class RuntimeConfig(msgspec.Struct, frozen=True):
    """The engine that runs the replicators, and the two times that bound a takeover: lease + request timeout."""

    engine: Engine = "ray"
    lease_ttl_ms: int = 6_000
    request_timeout_ms: int = 8_000


class RayConfig(msgspec.Struct, frozen=True):
    """The Ray cluster to run on:

    "local" starts one on this machine; any other value joins the cluster at that address.
    """

    address: str = "local"
    dashboard: bool = True
    dashboard_port: int | None = None
    """None means Ray's default port, or the next free one."""


class HttpConfig(msgspec.Struct, frozen=True):
    """The address of the daemon's HTTP server. If `listen` is None, it is 127.0.0.1 at 8182 or the next free port."""

    listen: HostPort | None = None
    advertised: HostPort | None = None
    """Address at which others reach the server. None means `listen`, or this machine's name if `listen` is every
    address.
    """
    token: Secret | None = None
    """A client that presents this token may give commands from another machine. Without a token only loopback clients
    may.
    """


class LogsConfig(msgspec.Struct, frozen=True):
    """Where daemons write their rotated logs. None means the user's state directory."""

    directory: str | None = None


class Config(msgspec.Struct, frozen=True):
    """The contents of a conf.toml."""

    clusters: dict[Alias, ClusterConfig]
    flows: tuple[FlowConfig, ...]
    elsewhere: tuple[FlowConfig, ...] = ()
    """Flows of the same file that are left to other daemons."""
    instance: str = "mirrord"
    """Distinguishes two daemons that share a Ray cluster or a machine."""
    replicators: ReplicatorsConfig = ReplicatorsConfig()
    runtime: RuntimeConfig = RuntimeConfig()
    ray: RayConfig = RayConfig()
    http: HttpConfig = HttpConfig()
    logs: LogsConfig = LogsConfig()
    audit: AuditConfig = AuditConfig()
    compact: CompactConfig = CompactConfig()

    @property
    def all_flows(self) -> tuple[FlowConfig, ...]:
        """The flows that run here, and those that are left to other daemons."""
        return self.flows + self.elsewhere

    def only(self, flows: Sequence[FlowConfig]) -> "Config":
        """Return the configuration with only these of its flows.

        The others are kept as `elsewhere`, because checks need them.
        """
        chosen = {flow.name for flow in flows}
        others = tuple(flow for flow in self.flows if flow.name not in chosen)
        return msgspec.structs.replace(self, flows=tuple(flows), elsewhere=(*self.elsewhere, *others))

    def flow(self, name: str) -> FlowConfig:
        """Return the flow of this name. If there is none, raises ConfigError with the nearest name."""
        for flow in self.flows:
            if flow.name == name:
                return flow
        names = [flow.name for flow in self.flows]
        like = nearest(name, names)
        hint = f' Did you mean "{like}"?' if like else ""
        raise ConfigError(f'no flow "{name}" in the configuration; there are: {", ".join(names)}.{hint}')

    def only_targets(self, names: Sequence[str]) -> "Config":
        """Return the configuration with only the flows into these clusters. Nothing is written to other clusters.

        A name may be a comma-separated list. Raises ConfigError if there is no such cluster, or if no flow is left.
        """
        wanted = [alias.strip() for name in names for alias in name.split(",") if alias.strip()]
        for alias in wanted:
            if alias not in self.clusters:
                like = nearest(alias, self.clusters)
                hint = f' Did you mean "{like}"?' if like else ""
                raise ConfigError(f'no cluster "{alias}" has a flow; there are: {", ".join(self.clusters)}.{hint}')
        flows = tuple(_writing_only(flow, wanted) for flow in self.flows if flow.target in wanted)
        if not flows:
            targets = ", ".join(dict.fromkeys(flow.target for flow in self.flows))
            raise ConfigError(f"no flow into {', '.join(wanted) or 'no cluster'}; there are flows into: {targets}")
        return self.only(flows)

    def below(self, folder: Path) -> "Config":
        """Return the configuration with relative paths resolved against this folder.

        The paths are also read by other processes, whose working directories differ.
        """
        directory, token, path = self.logs.directory, self.http.token, self.compact.path
        archive = str(folder / path) if path else None
        return msgspec.structs.replace(
            self,
            clusters={
                alias: msgspec.structs.replace(cluster, security=cluster.security.below(folder))
                for alias, cluster in self.clusters.items()
            },
            http=msgspec.structs.replace(self.http, token=token.below(folder) if token else None),
            logs=LogsConfig(directory=str(folder / directory) if directory else None),
            audit=msgspec.structs.replace(self.audit, out=str(folder / self.audit.out) if self.audit.out else None),
            compact=msgspec.structs.replace(self.compact, path=archive),
            flows=tuple(msgspec.structs.replace(flow, archive=archive) for flow in self.flows),
            elsewhere=tuple(msgspec.structs.replace(flow, archive=archive) for flow in self.elsewhere),
        )

    def describe(self) -> dict[str, object]:
        """Return the configuration as plain values for JSON, with every secret as ***."""
        return {name: plain(getattr(self, name)) for name in self.__struct_fields__}


def _writing_only(flow: FlowConfig, aliases: Sequence[Alias]) -> FlowConfig:
    """Return the flow without the heartbeats that it would write to a cluster outside the selection."""
    if flow.source in aliases or flow.heartbeats.emit in {"target", "off"}:
        return flow
    emit = "target" if flow.heartbeats.emit == "both" else "off"
    return msgspec.structs.replace(flow, heartbeats=msgspec.structs.replace(flow.heartbeats, emit=emit))


def plain(value: object) -> object:
    """Return a configuration, or a part of it, as plain values for JSON, with secrets as ***."""
    if isinstance(value, Secret | HostPort):
        return str(value)
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {name: plain(item) for name, item in cast(dict[str, object], value).items()}
    if isinstance(value, tuple):
        return [plain(item) for item in cast(tuple[object, ...], value)]
    return value
