"""Compares a running daemon's current configuration with a new one: what changes in each flow, and which changes
require a restart of the daemon.

Changes to topics, groups and synced configs take effect while the lanes keep copying. A flow's other settings, for
example limits, topic naming, the isolation level and the start position, are used by its lanes. If one of them changes,
all lanes of the flow are drained and started again; other flows are not affected. Changes to the number and placement
of replicators apply to all flows, and lanes are moved a few at a time. Changes to clusters in use and to the daemon's
other settings require a restart.

A daemon takes a new configuration only from its own file (`mirrord.config.own_file`). The file may therefore also add
clusters, and change policy classes, folders and Spark settings.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, cast

import msgspec

from mirrord.config.schema import Config, FlowConfig, plain
from mirrord.config.security import names_secret

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
        "recovery",
    }
)
"""Fields of a flow that its lanes do not use. They can change while the lanes keep copying."""
DAEMONS_OWN = ("instance", "ray", "http", "logs")
"""Sections of the configuration that may differ between two daemons that run the same flows. They specify where a
daemon runs, where it writes logs, and how it can be reached."""
_DAEMONS = ("runtime", "ledger", *DAEMONS_OWN)
_JOBS = ("audit", "compact", "drill")


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
    """Changes to the scheduled jobs, one line each. They apply to all flows."""

    @property
    def for_all(self) -> tuple[str, ...]:
        """The changes that apply to all flows, one line each."""
        return (*self.replicators, *self.jobs)


def compare(old: Config, new: Config) -> ConfigChanges:
    """Return the changes from `old` to `new`."""
    before = {flow.name: flow for flow in old.flows}
    after = {flow.name: flow for flow in new.flows}
    flows = [FlowChange(name, "removed") for name in before if name not in after]
    flows += [
        FlowChange(name, "added", (f"{flow.source} -> {flow.target}",))
        for name, flow in after.items()
        if name not in before
    ]
    refused = list(_refused(old, new))
    for name, flow in after.items():
        if name in before and flow != before[name]:
            if (flow.source, flow.target) != (before[name].source, before[name].target):
                refused.append(f"flow {name}: from and to: a flow between different clusters needs a different name")
            else:
                flows.append(_changed(before[name], flow))
    replicators = ()
    if old.replicators != new.replicators:
        replicators = tuple(_lines("replicators", _plain(old.replicators), _plain(new.replicators)))
    jobs = [line for name in _JOBS for line in _lines(name, _plain(getattr(old, name)), _plain(getattr(new, name)))]
    jobs = [line for line in jobs if not line.startswith("compact.path:")]  # each flow reports this change as `archive`
    return ConfigChanges(tuple(flows), replicators, tuple(refused), tuple(jobs))


def _changed(old: FlowConfig, new: FlowConfig) -> FlowChange:
    fields = _differing(old, new)
    lines = [line for name in fields for line in _lines(name, _plain(getattr(old, name)), _plain(getattr(new, name)))]
    return FlowChange(new.name, "changed", tuple(lines), restarts=restarts(old, new))


def _plain(value: object) -> object:
    return plain(value, with_references=True)


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


def _refused(old: Config, new: Config) -> Iterator[str]:
    for name in _DAEMONS:
        if getattr(old, name) != getattr(new, name):
            yield f"{name}: it is read only when a daemon starts; restart the daemon"
    for alias in sorted({alias for flow in new.flows for alias in (flow.source, flow.target)}):
        if alias in old.clusters and old.clusters[alias] != new.clusters[alias]:
            yield f"clusters.{alias}: how a cluster is reached is read only when a daemon starts; restart the daemon"
