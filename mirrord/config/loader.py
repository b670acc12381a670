"""Read conf.toml into the structs of `mirrord.config.schema`, with every default filled in.

`load` reads a file. It either returns a consistent `Config` or raises one ConfigError that lists all faults of the
file. The module does not connect to a cluster, read a secret or change a value that the user wrote.
"""

import re
from pathlib import Path
from typing import Literal, cast

import msgspec

from mirrord.config import toml_reader as read
from mirrord.config.cross_checks import check_flows
from mirrord.config.flow_features import (
    EVERY,
    MONTH_MS,
    read_from_mm2,
    read_groups,
    read_heartbeats,
    read_mm2_records,
    read_records,
    read_sync,
    refresh,
    separator,
)
from mirrord.config.jobs import read_audit, read_compact
from mirrord.config.policy_checks import BUILT_IN, PolicyCheck
from mirrord.config.policy_names import naming_of, policy, settings
from mirrord.config.schema import (
    ALIAS,
    ALIAS_RULE,
    ClusterConfig,
    Config,
    Engine,
    FlowConfig,
    HttpConfig,
    Isolation,
    LimitsConfig,
    LogsConfig,
    OnDeletedCopy,
    OnLoss,
    OnRecreated,
    OnReject,
    OnUnknownCopies,
    RayConfig,
    ReplicationFactor,
    ReplicatorsConfig,
    RuntimeConfig,
)
from mirrord.config.security import Secret
from mirrord.config.security_table import read_security
from mirrord.config.units import duration_ms, host_port, rate_bytes_per_s, regex, size_bytes, start_point
from mirrord.model.errors import ConfigError
from mirrord.model.names import Alias

_FLOW_NAME = re.compile(r"[A-Za-z0-9_-]{1,129}")
_ISOLATION: read.Convert[Isolation] = read.choice("read_committed", "read_uncommitted")
_ON_LOSS: read.Convert[OnLoss] = read.choice("continue", "halt")
_ON_REJECT: read.Convert[OnReject] = read.choice("halt", "skip", "skip-unparked")
_ON_DELETED_COPY: read.Convert[OnDeletedCopy] = read.choice("create", "halt")
_ON_UNKNOWN_COPIES: read.Convert[OnUnknownCopies] = read.choice("wait", "begin")
_ON_RECREATED: read.Convert[OnRecreated] = read.choice("keep", "fresh")
_ENGINE: read.Convert[Engine] = read.choice("ray", "process")
_PORT = read.integer(1, 65_535)
_PLACEMENT: read.Convert[Literal["balanced", "spread"]] = read.choice("balanced", "spread")
_AUTO_OR_COUNT: read.Convert[Literal["auto"] | int] = read.either("auto", read.integer(1, 10_000))
_ALARM_AFTER = read.within(duration_ms, 1_000, MONTH_MS, '"1s" to "30d"')
_REPLICATION_FACTOR: read.Convert[ReplicationFactor] = read.either(
    "source", cast(read.Convert[int], read.either("broker", read.integer(1, 32_767)))
)


def load(path: str | Path, policies: PolicyCheck = BUILT_IN) -> Config:
    """Read a file.

    Relative paths in it are resolved against its folder. `policies` judges policies that are not built in.

    Raises ConfigError if the file cannot be read or has any fault.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; name a conf.toml") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not a UTF-8 text, so not a TOML file") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    return load_text(text, str(path), policies).below(Path(path).absolute().parent)


def load_text(text: str, file_name: str, policies: PolicyCheck = BUILT_IN) -> Config:
    """Read the text of a configuration. `file_name` is used only in messages, and paths stay as they are written.

    Raises ConfigError with all faults.
    """
    document = read.Document(text, file_name)
    root = document.root
    instance = root.optional("instance", _name(ALIAS), "mirrord")
    clusters = {
        alias: _cluster(alias, table)
        for alias, table in root.named_tables("clusters", "a [clusters.ALIAS] table for each cluster").items()
    }
    flows = tuple(_flow(table, tuple(clusters)) for table in root.tables("flows", "at least one [[flows]] table"))
    compact = read_compact(root.table("compact"))
    flows = tuple(msgspec.structs.replace(flow, archive=compact.path) for flow in flows)
    config = Config(
        clusters=clusters,
        flows=flows,
        instance=instance,
        replicators=_replicators(root.table("replicators")),
        runtime=_runtime(root.table("runtime")),
        ray=_ray(root.table("ray")),
        http=_http(root.table("http")),
        logs=LogsConfig(directory=root.table("logs").optional("dir", read.text, None)),
        audit=read_audit(root.table("audit")),
        compact=compact,
    )
    for index, flow in enumerate(flows):
        for key, message in policies.faults(flow) if flow.source and flow.target else ():
            document.fault(f"flows[{index}].{key}", message)
    for index, message in check_flows(flows, policies.tells_origin):
        document.fault(f"flows[{index}]", message)
    document.finish()
    return config


def _name(pattern: re.Pattern[str]) -> read.Convert[str]:
    def convert(found: object) -> str:
        if not isinstance(found, str) or not pattern.fullmatch(found):
            raise ValueError('a name of letters, digits, "_" and "-"')
        return found

    return convert


def _cluster(alias: Alias, table: read.Table) -> ClusterConfig:
    if not ALIAS.fullmatch(alias):
        table.document.fault(table.path, f"the alias is not allowed; allowed: {ALIAS_RULE}")
    return ClusterConfig(
        bootstrap=table.required("bootstrap", _bootstrap, ()),
        security=read_security(table),
    )


def _bootstrap(found: object) -> tuple[str, ...]:
    rule = 'addresses such as "kafka1:9092,kafka2:9092"'
    if not isinstance(found, str):
        raise ValueError(rule)
    try:
        return tuple(str(host_port(part.strip())) for part in found.split(","))
    except ValueError:
        raise ValueError(rule) from None


def _flow(table: read.Table, aliases: tuple[Alias, ...]) -> FlowConfig:
    alias = read.choice(*aliases) if aliases else read.text
    source = table.required("from", alias, "")
    target = table.required("to", alias, "")
    limits = table.table("limits")
    return FlowConfig(
        name=table.optional("name", _name(_FLOW_NAME), f"{source}-{target}" if source and target else table.path),
        source=source,
        target=target,
        topics=table.list_of("topics", regex, required=True),
        exclude=table.list_of("exclude", regex),
        select=table.optional("select", policy, ""),
        select_settings=table.optional("select_settings", settings, {}),
        naming=table.optional("naming", naming_of, "prefix"),
        naming_settings=table.optional("naming_settings", settings, {}),
        separator=table.optional("separator", separator, "."),
        start=table.optional("start", start_point, "earliest"),
        start_of=table.table("start_of").all_of(regex, start_point),
        isolation=table.optional("isolation", _ISOLATION, "read_committed"),
        on_loss=table.optional("on_loss", _ON_LOSS, "continue"),
        on_reject=table.optional("on_reject", _ON_REJECT, "halt"),
        rpo_ms=table.optional("rpo", _ALARM_AFTER, None),
        transaction_alarm_ms=table.optional("transaction_alarm", _ALARM_AFTER, 60_000),
        refresh_ms=table.optional("refresh", refresh, 5_000),
        replication_factor=table.optional("replication_factor", _REPLICATION_FACTOR, "broker"),
        on_deleted_copy=table.optional("on_deleted_copy", _ON_DELETED_COPY, "create"),
        on_recreated=table.optional("on_recreated", _ON_RECREATED, "keep"),
        on_unknown_copies=table.optional("on_unknown_copies", _ON_UNKNOWN_COPIES, "wait"),
        propagate_deletes=table.optional("propagate_deletes", read.boolean, False),
        delete_grace_ms=table.optional("delete_grace", EVERY, 86_400_000),
        groups=read_groups(table.table("groups")),
        records=read_records(table.table("records")),
        sync=read_sync(table.table("sync")),
        heartbeats=read_heartbeats(table.table("heartbeats")),
        mm2_records=read_mm2_records(table.table("mm2_records")),
        from_mm2=read_from_mm2(table.table("from_mm2")),
        limits=LimitsConfig(
            in_flight_bytes=limits.optional(
                "in_flight_bytes", read.within(size_bytes, 1 << 20, 1 << 40, '"1MiB" to "1024GiB"'), 64 << 20
            ),
            map_bytes=limits.optional(
                "map_bytes", read.within(size_bytes, 8 << 20, 1 << 40, '"8MiB" to "1024GiB"'), 64 << 20
            ),
            rate_bytes_per_s=limits.optional("rate", rate_bytes_per_s, None),
        ),
    )


def _replicators(table: read.Table) -> ReplicatorsConfig:
    return ReplicatorsConfig(
        count=table.optional("count", _AUTO_OR_COUNT, "auto"),
        partitions_per_replicator=table.optional("partitions_per_replicator", _AUTO_OR_COUNT, "auto"),
        placement=table.optional("placement", _PLACEMENT, "balanced"),
        alone=table.list_of("alone", regex),
        spares=table.optional("spares", read.integer(0, 100), 0),
    )


def _runtime(table: read.Table) -> RuntimeConfig:
    seconds = read.within(duration_ms, 1_000, 300_000, '"1s" to "5m"')
    return RuntimeConfig(
        engine=table.optional("engine", _ENGINE, "ray"),
        lease_ttl_ms=table.optional("lease_ttl", seconds, 6_000),
        request_timeout_ms=table.optional("request_timeout", seconds, 8_000),
    )


def _ray(table: read.Table) -> RayConfig:
    return RayConfig(
        address=table.optional("address", read.text, "local"),
        dashboard=table.optional("dashboard", read.boolean, True),
        dashboard_port=table.optional("dashboard_port", _PORT, None),
    )


def _http(table: read.Table) -> HttpConfig:
    return HttpConfig(
        listen=table.optional("listen", host_port, None),
        advertised=table.optional("advertised", host_port, None),
        token=table.optional("token", Secret.parse, None, secret=True),
    )
