"""Compares a running daemon's current configuration with a new one: what changes in each flow, and which changes
require a restart of the daemon.

Changes to topics, groups and synced configs take effect while the lanes keep copying. A flow's other settings, for
example limits, topic naming, the isolation level and the start position, are used by its lanes. If one of them changes,
all lanes of the flow are drained and started again; other flows are not affected. Changes to the number and placement
of replicators apply to all flows, and lanes are moved a few at a time. Changes to clusters in use and to the daemon's
other settings require a restart.

A configuration that arrives over HTTP may change less than one that is read from the daemon's own file. It must not
change clusters, file references, folders, Spark settings or policy classes. Otherwise, a client with permission to give
operator commands could access the daemon's secrets and files, or choose the code that the daemon runs.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, cast

import msgspec

from mirrord.config.loader import load_text
from mirrord.config.policy_checks import Unjudged, third_party
from mirrord.config.schema import Config, FlowConfig, plain
from mirrord.config.security import names_secret
from mirrord.config.writer import conf_toml
from mirrord.model.errors import ConfigError

LIVE = frozenset(
    {
        "topics",
        "exclude",
        "select",
        "select_settings",
        "rpo_ms",
        "refresh_ms",
        "replication_factor",
        "on_deleted_copy",
        "on_recreated",
        "propagate_deletes",
        "delete_grace_ms",
        "groups",
        "sync",
        "heartbeats",
        "mm2_records",
    }
)
"""Fields of a flow that its lanes do not use. They can change while the lanes keep copying."""
DAEMONS_OWN = ("instance", "ray", "http", "logs")
"""Sections of the configuration that may differ between two daemons that run the same flows. They specify where a
daemon runs, where it writes logs, and how it can be reached."""
_DAEMONS = ("runtime", *DAEMONS_OWN)
_JOBS = ("audit", "compact")
_OWN_FILE = "taken only from the daemon's own file (SIGHUP)"
_OWN_FILE_SETTINGS = {"audit": ("out", "spark"), "compact": ("path", "spark")}
"""The settings of audits and compactions that name folders, or that make Spark run code. Only the daemon's own file can
change them."""


class FlowChange(msgspec.Struct, frozen=True):
    """The changes to one flow."""

    flow: str
    kind: Literal["added", "removed", "changed"]
    lines: tuple[str, ...] = ()
    """The changed values, one line each, for operators and for the ledger."""
    topics: tuple[str, ...] = ()
    """Topics that start or stop being copied, one line each."""
    restarts: bool = False
    """Whether all lanes of this flow are drained and started again because they use a changed setting."""


class ConfigChanges(msgspec.Struct, frozen=True):
    """All differences between two configurations of a daemon."""

    flows: tuple[FlowChange, ...] = ()
    replicators: tuple[str, ...] = ()
    """Changes to the number and placement of replicators, one line each. They apply to all flows."""
    refused: tuple[str, ...] = ()
    """Changes that cannot be applied while the daemon is running, one line each. If there are any, no change is
    applied."""
    jobs: tuple[str, ...] = ()
    """Changes to the scheduled audits and compactions, one line each. They apply to all flows."""

    @property
    def for_all(self) -> tuple[str, ...]:
        """The changes that apply to all flows, one line each."""
        return (*self.replicators, *self.jobs)


def compare(old: Config, new: Config, *, own_file: bool) -> ConfigChanges:
    """Return the changes from `old` to `new`.

    `own_file` means that `new` was read from the daemon's own file. Otherwise, `new` must not contain new clusters,
    policy classes, folders or Spark settings.
    """
    before = {flow.name: flow for flow in old.flows}
    after = {flow.name: flow for flow in new.flows}
    flows = [FlowChange(name, "removed") for name in before if name not in after]
    flows += [
        FlowChange(name, "added", (f"{flow.source} -> {flow.target}",))
        for name, flow in after.items()
        if name not in before
    ]
    refused = list(_refused(old, new))
    refused += _refused_from_file(old, new) if own_file else _refused_from_order(old, new)
    if not own_file and not refused:
        refused += _faults(from_order(old, new))
    for name, flow in after.items():
        if name in before and flow != before[name]:
            if (flow.source, flow.target) != (before[name].source, before[name].target):
                refused.append(f"flow {name}: from and to: a flow between different clusters needs a different name")
            else:
                flows.append(_changed(before[name], flow))
    replicators = ()
    if old.replicators != new.replicators:
        replicators = tuple(_lines("replicators", plain(old.replicators), plain(new.replicators)))
    jobs = [line for name in _JOBS for line in _lines(name, plain(getattr(old, name)), plain(getattr(new, name)))]
    jobs = [line for line in jobs if not line.startswith("compact.path:")]  # each flow reports this change as `archive`
    return ConfigChanges(tuple(flows), replicators, tuple(refused), tuple(jobs))


def _changed(old: FlowConfig, new: FlowConfig) -> FlowChange:
    fields = _differing(old, new)
    lines = [line for name in fields for line in _lines(name, plain(getattr(old, name)), plain(getattr(new, name)))]
    return FlowChange(new.name, "changed", tuple(lines), restarts=restarts(old, new))


def restarts(old: FlowConfig, new: FlowConfig) -> bool:
    """Return whether the configurations differ in a setting that lanes use."""
    return not LIVE.issuperset(_differing(old, new))


def _differing(old: FlowConfig, new: FlowConfig) -> list[str]:
    return [name for name in old.__struct_fields__ if getattr(old, name) != getattr(new, name)]


def _lines(path: str, old: object, new: object) -> Iterator[str]:
    """Yield one line for each value that differs. The line for a list shows its added and removed items.

    A value is not shown if the name of its key suggests that the value is a secret.
    """
    match old, new:
        case dict(), dict():
            before, after = cast(dict[str, object], old), cast(dict[str, object], new)
            for name in {**before, **after}:
                if before.get(name) != after.get(name):
                    yield from _lines(f"{path}.{name}", before.get(name), after.get(name))
        case list(), list():
            yield f"{path}: {_items(cast(list[object], old), cast(list[object], new))}"
        case _ if names_secret(path):
            yield f"{path}: a different value"
        case _:
            yield f"{path}: {_text(old)} -> {_text(new)}"


def _items(old: Sequence[object], new: Sequence[object]) -> str:
    gone = [f"- {_text(item)}" for item in old if item not in new]
    come = [f"+ {_text(item)}" for item in new if item not in old]
    return ", ".join([*gone, *come]) or "a different order"


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _loads(flow: FlowConfig) -> set[tuple[str, str, bytes]]:
    return {(key, text, msgspec.json.encode(settings)) for key, text, settings in third_party(flow)}


def from_order(old: Config, new: Config) -> Config:
    """Return a copy of `old` in which those parts that an operator command may change are taken from `new`."""
    return msgspec.structs.replace(
        old,
        flows=tuple(msgspec.structs.replace(flow, archive=old.compact.path) for flow in new.flows),
        elsewhere=tuple(msgspec.structs.replace(flow, archive=old.compact.path) for flow in new.elsewhere),
        replicators=new.replicators,
        audit=msgspec.structs.replace(new.audit, out=old.audit.out, spark=old.audit.spark),
        compact=msgspec.structs.replace(new.compact, path=old.compact.path, spark=old.compact.spark),
    )


def _refused(old: Config, new: Config) -> Iterator[str]:
    for name in _DAEMONS:
        if getattr(old, name) != getattr(new, name):
            yield f"{name}: it is read only when a daemon starts; restart the daemon"


def _refused_from_file(old: Config, new: Config) -> Iterator[str]:
    for alias in sorted({alias for flow in new.flows for alias in (flow.source, flow.target)}):
        if alias in old.clusters and old.clusters[alias] != new.clusters[alias]:
            yield f"clusters.{alias}: how a cluster is reached is read only when a daemon starts; restart the daemon"


def _refused_from_order(old: Config, new: Config) -> Iterator[str]:
    """Yield one line for each change that a client is not allowed to make over HTTP.

    Clusters and settings that no flow uses are checked as well, because a later command could use them.
    """
    used = {alias for flow in new.all_flows for alias in (flow.source, flow.target)}
    for alias in sorted(used | new.clusters.keys()):
        if alias not in old.clusters:
            yield f"clusters.{alias}: a new cluster is {_OWN_FILE}"
        elif new.clusters.get(alias, old.clusters[alias]) != old.clusters[alias]:
            yield f"clusters.{alias}: how a cluster is reached is read only when a daemon starts; restart the daemon"
    for table, keys in _OWN_FILE_SETTINGS.items():
        for key in keys:
            if getattr(getattr(old, table), key) != getattr(getattr(new, table), key):
                yield f"{table}.{key}: it is {_OWN_FILE}"
    known = {policy for flow in old.all_flows for policy in _loads(flow)}
    for flow in new.all_flows:
        # Loading a policy executes its code.
        for key, text, _ in sorted(_loads(flow) - known):
            yield f'flow {flow.name}: {key}: "{text}" is {_OWN_FILE}'
        if flow.archive != new.compact.path:
            yield f"flow {flow.name}: archive: it is {_OWN_FILE}"


def _faults(config: Config) -> list[str]:
    """Return the faults in a configuration that arrived over HTTP. A conf.toml with the same settings would have the
    same faults."""
    whole = msgspec.structs.replace(config, flows=config.all_flows, elsewhere=())
    try:
        read = load_text(conf_toml(whole), "the configuration", Unjudged())
    except ConfigError as error:
        return str(error).splitlines()
    parts = ("flows", "replicators", "audit", "compact")
    return [f"{part}: no file could express this" for part in parts if getattr(read, part) != getattr(whole, part)]
