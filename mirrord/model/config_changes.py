"""From one configuration to another while a daemon runs: what changes for which flow, and what only a restart can take.

Topics, groups and what is kept in step change while all lanes that stay wanted go on. What lanes themselves work by
(limits, names, isolation, the start) is taken up when all lanes of that flow have been drained; other flows are not
concerned. How many replicators there are, and what they host, is for all flows at once: lanes move, a few at a time.
Clusters that are in use and the daemon's other settings need another daemon.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, cast

import msgspec

from mirrord.model.config import Config, FlowConfig, plain
from mirrord.model.config_policies import third_party

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
"""Fields of a flow that lanes do not work by."""
DAEMONS_OWN = ("instance", "ray", "http", "logs")
"""What two daemons of the same flows differ in: where each runs, writes and is found."""
_DAEMONS = ("runtime", *DAEMONS_OWN)
_JOBS = ("audit", "compact")


class FlowChange(msgspec.Struct, frozen=True):
    """One flow."""

    flow: str
    kind: Literal["added", "removed", "changed"]
    lines: tuple[str, ...] = ()
    """What is new, for people and for the ledger."""
    topics: tuple[str, ...] = ()
    """Topics that are copied from then on, or no longer, one line each."""
    restarts: bool = False
    """All lanes of this flow are drained and begin again."""


class ConfigChanges(msgspec.Struct, frozen=True):
    """The whole difference."""

    flows: tuple[FlowChange, ...] = ()
    replicators: tuple[str, ...] = ()
    """What is new in their number and in what they host, one line each; it is for all flows."""
    refused: tuple[str, ...] = ()
    """What cannot be taken while the daemon runs; then nothing of it is taken."""
    jobs: tuple[str, ...] = ()
    """What is new in the audits and compactions by schedule, one line each; it is for all flows."""

    @property
    def for_all(self) -> tuple[str, ...]:
        """What is for all flows."""
        return (*self.replicators, *self.jobs)


def compare(old: Config, new: Config, *, new_clusters: bool) -> ConfigChanges:
    """What it takes to run by `new` instead of `old`.

    `new_clusters`: whether clusters may be added, and policies of third parties: in the daemon's own file alone.
    """
    before = {flow.name: flow for flow in old.flows}
    after = {flow.name: flow for flow in new.flows}
    flows = [FlowChange(name, "removed") for name in before if name not in after]
    flows += [
        FlowChange(name, "added", (f"{flow.source} -> {flow.target}",))
        for name, flow in after.items()
        if name not in before
    ]
    refused = list(_refused(old, new, new_clusters=new_clusters))
    for name, flow in after.items():
        if name in before and flow != before[name]:
            if (flow.source, flow.target) != (before[name].source, before[name].target):
                refused.append(f"flow {name}: from and to: a flow of other clusters needs another name")
            else:
                flows.append(_changed(before[name], flow))
    replicators = ()
    if old.replicators != new.replicators:
        replicators = tuple(_lines("replicators", plain(old.replicators), plain(new.replicators)))
    jobs = [line for name in _JOBS for line in _lines(name, plain(getattr(old, name)), plain(getattr(new, name)))]
    jobs = [line for line in jobs if not line.startswith("compact.path:")]  # each flow tells it
    return ConfigChanges(tuple(flows), replicators, tuple(refused), tuple(jobs))


def _changed(old: FlowConfig, new: FlowConfig) -> FlowChange:
    fields = _differing(old, new)
    lines = [line for name in fields for line in _lines(name, plain(getattr(old, name)), plain(getattr(new, name)))]
    return FlowChange(new.name, "changed", tuple(lines), restarts=restarts(old, new))


def restarts(old: FlowConfig, new: FlowConfig) -> bool:
    """Whether lanes work by something that differs."""
    return not LIVE.issuperset(_differing(old, new))


def _differing(old: FlowConfig, new: FlowConfig) -> list[str]:
    return [name for name in old.__struct_fields__ if getattr(old, name) != getattr(new, name)]


def _lines(path: str, old: object, new: object) -> Iterator[str]:
    """One line for each value that differs; lists by what comes and what goes."""
    match old, new:
        case dict(), dict():
            before, after = cast(dict[str, object], old), cast(dict[str, object], new)
            for name in {**before, **after}:
                if before.get(name) != after.get(name):
                    yield from _lines(f"{path}.{name}", before.get(name), after.get(name))
        case list(), list():
            yield f"{path}: {_items(cast(list[object], old), cast(list[object], new))}"
        case _:
            yield f"{path}: {_text(old)} -> {_text(new)}"


def _items(old: Sequence[object], new: Sequence[object]) -> str:
    gone = [f"- {_text(item)}" for item in old if item not in new]
    come = [f"+ {_text(item)}" for item in new if item not in old]
    return ", ".join([*gone, *come]) or "another order"


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _loads(flow: FlowConfig) -> set[tuple[str, str, bytes]]:
    return {(key, text, msgspec.json.encode(settings)) for key, text, settings in third_party(flow)}


def _refused(old: Config, new: Config, *, new_clusters: bool) -> Iterator[str]:
    for name in _DAEMONS:
        before, after = getattr(old, name), getattr(new, name)
        if before != after:
            yield f"{name}: it is read when a daemon starts; restart it"
    known = {policy for flow in old.flows for policy in _loads(flow)}
    for flow in new.flows:
        # To load a policy is to run code: whoever may give orders need not be whoever may choose what runs.
        for key, text, _ in sorted(() if new_clusters else _loads(flow) - known):
            yield f'flow {flow.name}: {key}: "{text}" is taken from the daemon\'s own file alone (SIGHUP)'
    used = {alias for flow in new.flows for alias in (flow.source, flow.target)}
    for alias in sorted(used):
        if alias not in old.clusters:
            if not new_clusters:
                yield f"clusters.{alias}: a new cluster is taken from the daemon's own file alone (SIGHUP)"
        elif old.clusters[alias] != new.clusters[alias]:
            yield f"clusters.{alias}: how a cluster is reached is read when a daemon starts; restart it"
