"""docs/reference/facts.md, made from the structs of the facts, their docstrings, and the effects listed here."""

import ast
import inspect
import re
import textwrap
import types
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Literal, Union, get_args, get_origin

import msgspec

from mirrord.ledger.facts import core
from mirrord.ledger.facts.archive import CompactionBegan, MapCompacted
from mirrord.ledger.facts.audit import AuditFact, RangeAudited, RangeRepaired
from mirrord.ledger.facts.jobs import JobBegan, JobEnded, JobFact, JobRenewed
from mirrord.ledger.facts.orders import (
    CopyingPaused,
    CopyingResumed,
    HostDrained,
    HostRestored,
    LanePinned,
    LaneUnpinned,
    OrderFact,
)
from mirrord.ledger.facts.quarantine import Quarantined, QuarantineReplayed, QuarantineSkipped
from mirrord.ledger.facts.seeks import LaneSought, SeekDone

LINE = 120

SECTIONS: tuple[tuple[str, str, Any], ...] = (
    ("Flow", "", core.FlowFact),
    ("Target topics", "Changes that mirrord plans, and changes that it has made.", core.TopicFact),
    (
        "Lanes",
        "All of them except `LaneOpened` and `LaneTaken` take effect only if `grant` is the lane's current grant. "
        "[What was not copied](../explanation/gaps.md) explains the reasons of verdicts.",
        core.LaneFact,
    ),
    (
        "Operator commands",
        "They carry no grant, because the command line does not know it. The replicator that hosts the lane reads the "
        "command and carries it out.",
        OrderFact | QuarantineSkipped | QuarantineReplayed | LaneSought,
    ),
    (
        "Audits, compactions and jobs",
        "They hold no lease: they take effect under the current lease, even after that was released, and decide "
        "nothing about copying.",
        AuditFact | CompactionBegan | MapCompacted | JobFact,
    ),
)
"""Title, introduction and union of the facts of each section. Together they hold every fact once."""

EFFECTS: dict[type, str] = {
    core.FlowOpened: "Takes effect if no earlier one has. Sets the flow's name and its clusters.",
    core.LeaseTaken: (
        "Takes effect if `epoch` is one more than the last epoch and equals the epoch of its entry. Replaces the "
        "holder and the length of the lease. Facts that follow it in the same entry take effect only if it does."
    ),
    core.LeaseContinued: (
        "Takes effect if `epoch` is the current one, `turn` is one more than the last, and `holder` names the same "
        "daemon as the current holder. Replaces the holder."
    ),
    core.LeaseReleased: (
        "Takes effect if `epoch` is the current one. Until the next `LeaseTaken`, only facts of audits, compactions "
        "and jobs take effect."
    ),
    core.TargetProbed: "Replaces the result of the last probe.",
    core.ConfigChanged: (
        "Keeps the start offsets in `starts` until the lanes concerned have begun, and the selection if `selected` is "
        "set. `changes` are not kept."
    ),
    core.AclsPlanned: "Replaces the ACLs that are planned.",
    core.AclsSynced: "Adds to and removes from the ACLs that mirrord added. No ACLs are planned any more.",
    core.TopicCreated: "Takes effect if the target topic is not known yet. Adds it, as a topic that mirrord created.",
    core.PartitionsGrown: (
        "Takes effect if the topic is not known, or has fewer partitions. Sets the partition count. A topic that was "
        "not known counts as one that mirrord did not create."
    ),
    core.ConfigsSynced: "Changes no state. It is kept for `mirrord ledger show`.",
    core.TopicDeletionPlanned: (
        "Takes effect if mirrord created the topic and no deletion is planned yet. Sets the time of the deletion."
    ),
    core.TopicDeletionWithdrawn: "Takes effect if a deletion is planned. Removes the time of the deletion.",
    core.TopicDeleted: "Takes effect if the topic is known. Removes it from the target topics.",
    core.CopyForgotten: (
        "Takes effect if there is anything to drop. Drops the lanes between the two topics with their resume "
        "positions, and the target topic. If the source topic has no other lanes, drops its `CopyNamed` as well. The "
        "names of the last 1,000 forgotten source topics are kept."
    ),
    core.CopyNamed: "Takes effect under the conditions above. Keeps the name until `CopyForgotten`.",
    core.LaneOpened: (
        "Takes effect if the lane is not known yet. Creates the state of the lane: grant 0, no runs, no verdicts."
    ),
    core.LaneTaken: (
        "Takes effect if `grant` is one more than the lane's grant. Sets the grant, the replicator and the times."
    ),
    core.PolicyChanged: "Sets the policy of the lane.",
    core.SourceRun: (
        "Adds the runs to the source side of the map; earlier runs at or above each of them are dropped. Counts the "
        "verdicts. Everything else that was recorded for the reassigned ordinals is dropped as well: holes, epochs, "
        "and proof by audits. A `truncated` verdict also drops seeks, quarantine entries and repairs that reach into "
        "the truncated offsets."
    ),
    core.TargetRun: (
        "Adds the run to the target side of the map. Earlier runs at or above `ordinal`, and those at or above "
        "`offset`, are dropped, because the log has gone back since. Proof by audits that covers `ordinal` is dropped."
    ),
    core.VerdictGiven: (
        "Counts the verdicts. A newer verdict overrides an older one about the same offsets, except `truncated`. The "
        "state keeps the exact ranges of the newest 128."
    ),
    core.HoleFound: (
        "Adds the hole. Proof by audits that covers `first` is dropped. What older holes copy again after `again` "
        "ends at `until`."
    ),
    core.LaneHalted: "The lane is halted. A later one replaces this one.",
    core.LaneResumed: "The lane is no longer halted. Quarantine entries that wait for a decision are removed.",
    core.TakeoverChecked: (
        "Replaces the last comparison. If it covers the lowest ordinal that was reassigned (`SourceRun.regiven`) and "
        "found no difference, it settles the reassigned ordinals; with `more`, only those up to `last`."
    ),
    core.MapRebuilt: (
        "Adds a hole that holds no ordinals, after which the missing records follow. Drops the proof by audits that "
        "covers `first`, the last comparison, and the note about reassigned ordinals. Replaces an older hole without "
        "ordinals at the same place; what other older holes copy again after `first` ends at `until`."
    ),
    core.CopyInherited: "Is kept in the state of the lane.",
    Quarantined: (
        "Adds an entry to the lane's quarantine, in place of earlier entries about the same offsets. Consecutive "
        "entries that the policy skips are merged. The newest 128 entries are kept."
    ),
    SeekDone: (
        "Removes the pending seeks that reach no further than `end`. If a seek ends there and offsets were skipped, "
        "the skipped range is kept."
    ),
    CopyingPaused: "Takes effect unless the same name is paused. The lanes of this name are no longer wanted.",
    CopyingResumed: "Takes effect if exactly this name is paused. Removes the pause.",
    LanePinned: "Takes effect unless the partition is pinned to the same replicator. Replaces an earlier pin.",
    LaneUnpinned: "Takes effect if the partition is pinned. Removes the pin.",
    HostDrained: "Takes effect unless the replicator is drained. It gets no more lanes.",
    HostRestored: "Takes effect if the replicator is drained. Removes the drain.",
    QuarantineSkipped: (
        "Takes effect if an entry of the lane waits for a decision and begins within the range. Replaces the entry by "
        "one that is skipped."
    ),
    QuarantineReplayed: (
        "Takes effect if an entry of the lane waits for a decision and begins within the range. Removes the entry, "
        "and the lane tries again."
    ),
    LaneSought: "Takes effect unless a seek of the lane reaches at least as far. Adds a pending seek.",
    RangeAudited: (
        "Takes effect if it extends the proven range without a gap, or proves the same range more closely. Extends the "
        "proven range. If its parts were compared at different levels, the whole range has the lower level."
    ),
    RangeRepaired: (
        "Takes effect if some of the offsets are not known to be in this topic. Adds the range and merges it with its "
        "neighbours; the newer fact overrides older ones. The 128 ranges with the highest offsets are kept."
    ),
    CompactionBegan: "Takes effect if `number` is higher than the last. Later `MapCompacted` need this number.",
    MapCompacted: "Takes effect under the conditions above. The next snapshots of the lane refer to the files instead.",
    JobBegan: "Takes effect if `number` is one more than the last of its kind. Replaces the last job of its kind.",
    JobRenewed: "Takes effect while the job runs. Counts a sign of life and sets the progress.",
    JobEnded: "Takes effect while the job runs. Sets the outcome, and the time of the last success if it succeeded.",
}
"""What the fold does with each fact under the current lease (`mirrord.ledger.fold`)."""

SHARED = {
    "end": "Source offset after the last one.",
    "epoch": "Epoch of the lease.",
    "grant": "Grant of the lane's holder.",
    "holder": "The holder, and how to reach it.",
    "job": "Kind of the job.",
    "lane": "Id of the lane.",
    "number": "Number of the job, which rises by one with each job of its kind.",
    "origin": "Who gave the command, when, and why.",
    "partition": "The partition, which has the same number on both sides.",
    "pid": "Process id.",
    "producer_epoch": "Epoch of the producer id.",
    "producer_id": "Producer id of the lane.",
    "replicator": "Name of the replicator.",
    "source_cluster": "Cluster id of the source.",
    "source_topic": "Name of the source topic.",
    "source_topic_id": "Topic id of the source topic.",
    "start": "First source offset.",
    "target_cluster": "Cluster id of the target.",
    "target_topic": "Name of the target topic.",
    "target_topic_id": "Topic id of the target topic.",
}
"""What a field means if its struct does not say so."""

_HEAD = """\
# Facts of the ledger

Generated from the structs in `mirrord/ledger/facts` (`python -m mirrord.ledger.facts.reference_page`). Do not edit this
page. [The ledger](../explanation/ledger.md) explains what a ledger is and how facts become state.

`mirrord ledger show` prints the facts of a flow. The topic `mirrord.<flow>.ledger` holds one entry per record: a
version byte, then a msgpack array with the fields of [`Entry`](#entry) in the order shown here. A fact is an array as
well: its tag, then its fields. Fields with a default may be missing at the end. Times whose names end in `_ms` are in
milliseconds; wall-clock times count from the Unix epoch. Ids are strings: `ClusterId` and `TopicId` are Kafka's, and a
`LaneId` is `<source topic id>.<partition>.<target topic id>`.

The fold ignores an entry of an older lease epoch, and an entry that it has folded already. Nothing takes effect before
`FlowOpened`. All other facts take effect only under the current lease, and only until it is released, except those in
[the last section](#audits-compactions-and-jobs). A fact about a lane or a topic that is not known does not take effect
unless the fact itself introduces it. A fact that does not take effect changes nothing.
"""


def facts(union: Any) -> tuple[type[msgspec.Struct], ...]:
    """Return the structs of a union, in its order."""
    return tuple(get_args(union))


def parts() -> list[type[msgspec.Struct]]:
    """Return the structs that facts contain, in alphabetical order."""
    found: dict[str, type[msgspec.Struct]] = {}
    waiting = [struct for _, _, union in SECTIONS for struct in facts(union)]
    known = set(waiting)
    while waiting:
        for field in msgspec.structs.fields(waiting.pop()):
            for struct in _structs(field.type):
                if struct not in known and struct.__name__ not in found:
                    found[struct.__name__] = struct
                    waiting.append(struct)
    return [found[name] for name in sorted(found)]


def meanings(struct: type[msgspec.Struct]) -> dict[str, str]:
    """Return the meaning of each field: its docstring, or else the shared one. Raises KeyError if there is neither."""
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(struct))).body
    body = node.body if isinstance(node, ast.ClassDef) else []
    written: dict[str, str] = {}
    for before, after in pairwise(body):
        if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name) and isinstance(after, ast.Expr):
            text = ast.literal_eval(after.value)
            written[before.target.id] = " ".join(str(text).split())
    return {name: written.get(name) or SHARED[name] for name in struct.__struct_fields__}


def page() -> str:
    """Return the text of docs/reference/facts.md."""
    known = frozenset(struct.__name__ for _, _, union in SECTIONS for struct in facts(union)) | {
        struct.__name__ for struct in (*parts(), core.Entry)
    }
    contents = ", ".join(f"[{title}](#{_anchor(title)})" for title in (*_titles(), "Parts"))
    lines = [_HEAD, *_paragraphs(f"{contents}.", frozenset()), "## Entry", "", *_struct(core.Entry, known)]
    for title, about, union in SECTIONS:
        lines += [f"## {title}", "", *_paragraphs(about, known)]
        for struct in facts(union):
            lines += [f"### {struct.__name__}", "", f"Tag `{struct.__struct_config__.tag}`.", ""]
            lines += _struct(struct, known)
    lines += ["## Parts", "", "Structs that facts contain. They are arrays without a tag.", ""]
    for struct in parts():
        lines += [f"### {struct.__name__}", "", *_struct(struct, known)]
    return "\n".join(lines).rstrip() + "\n"


def _titles() -> Iterator[str]:
    for title, _, _ in SECTIONS:
        yield title


def _anchor(title: str) -> str:
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def _struct(struct: type[msgspec.Struct], known: frozenset[str]) -> list[str]:
    lines = _paragraphs(inspect.cleandoc(struct.__doc__ or ""), known - {struct.__name__})
    if struct in EFFECTS:
        lines += _paragraphs(f"**Fold.** {EFFECTS[struct]}", known - {struct.__name__})
    lines += ["| field | type | meaning |", "|---|---|---|"]
    about = meanings(struct)
    for field in msgspec.structs.fields(struct):
        default = "" if field.required else f" Default: {_value(field.default)}."
        meaning = _linked(about[field.name], known - {struct.__name__}).replace("|", r"\|")
        lines.append(f"| `{field.name}` | {_type(field.type, known)} | {meaning}{default} |")
    return [*lines, ""]


def _paragraphs(text: str, known: frozenset[str]) -> list[str]:
    lines: list[str] = []
    for paragraph in text.split("\n\n") if text else ():
        words = _linked(" ".join(paragraph.split()), known)
        lines += [*textwrap.wrap(words, LINE, break_long_words=False, break_on_hyphens=False), ""]
    return lines


def _linked(text: str, known: frozenset[str]) -> str:
    """Return the text with links to the structs that it names."""

    def link(found: re.Match[str]) -> str:
        name = found[1].partition(".")[0]
        return f"[`{found[1]}`](#{name.lower()})" if name in known else found[0]

    return re.sub(r"`([A-Z]\w+(?:\.\w+)?)`", link, text)


def _value(value: object) -> str:
    if value is None:
        return "none"
    if value in {"", ()}:
        return "empty"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _structs(kind: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
    for inner in get_args(kind):
        yield from _structs(inner)


def _type(kind: Any, known: frozenset[str]) -> str:
    """Return a type in words."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        *values, last = (f"`{value}`" for value in inner)
        return f"{', '.join(values)} or {last}" if values else last
    if origin is tuple and inner[1:] == (Ellipsis,):
        return f"list of {_type(inner[0], known)}" if inner[0] is not core.AnyFact else "list of facts"
    if origin is tuple:
        return f"({', '.join(_type(each, known) for each in inner)})"
    if origin in {Union, types.UnionType}:
        return " or ".join("none" if each is type(None) else _type(each, known) for each in inner)
    name = str(kind.__name__)
    return f"[`{name}`](#{name.lower()})" if name in known else f"`{name}`"


if __name__ == "__main__":
    print(page(), end="")  # noqa: T201 - the page, for redirection in a shell
