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
    ("Target topics", "Changes of target topics that mirrord plans, and those that it has made.", core.TopicFact),
    (
        "Lanes",
        "All facts of this section except `LaneOpened` and `LaneTaken` take effect only if `grant` is the lane's "
        "current grant. [What was not copied](../explanation/gaps.md) explains the reasons that verdicts can have.",
        core.LaneFact,
    ),
    (
        "Operator commands",
        "Operator commands carry no grant, because the command line does not know the grant of a lane. The replicator "
        "that hosts the lane reads the command from the ledger and carries it out.",
        OrderFact | QuarantineSkipped | QuarantineReplayed | LaneSought,
    ),
    (
        "Audits, compactions and jobs",
        "Audits, compactions and jobs hold no lease. Their facts take effect under the current lease, even after this "
        "lease was released, and decide nothing about copying.",
        AuditFact | CompactionBegan | MapCompacted | JobFact,
    ),
)
"""Title, introduction and union of facts of each section. Every fact is in exactly one section."""

EFFECTS: dict[type, str] = {
    core.FlowOpened: (
        "The fact takes effect if none of this kind has taken effect before. It sets the name of the flow and the "
        "ids of its clusters."
    ),
    core.LeaseTaken: (
        "The fact takes effect if `epoch` is one more than the last epoch and equals the lease epoch of its entry. "
        "It sets the holder and the length of the lease. If it does not take effect, neither do the facts that "
        "follow it in the same entry."
    ),
    core.LeaseContinued: (
        "The fact takes effect if `epoch` is the current epoch, `turn` is one more than the last, and `holder` "
        "names the same daemon as the current holder. It replaces the holder."
    ),
    core.LeaseReleased: (
        "The fact takes effect if `epoch` is the current epoch. From then on until the next `LeaseTaken`, only the "
        "facts of audits, repairs, compactions and jobs take effect."
    ),
    core.TargetProbed: "The fact replaces the result of the last probe.",
    core.ConfigChanged: (
        "The fact adds the start offsets in `starts` to the state, which keeps each of them until the lane of its "
        "partition has begun. If `selected` is set, it replaces the selection. The lines in `changes` are not kept "
        "in the state."
    ),
    core.AclsPlanned: "The fact replaces the set of planned ACLs.",
    core.AclsSynced: (
        "The fact adds the ACLs in `added` to the set of ACLs that mirrord has added, and removes those in "
        "`removed` from this set. It also clears the set of planned ACLs."
    ),
    core.TopicCreated: (
        "The fact takes effect if the target topic is not in the state yet. It adds the topic, as one that mirrord "
        "has created."
    ),
    core.PartitionsGrown: (
        "The fact takes effect if the target topic is not in the state, or has fewer partitions there. It sets the "
        "number of partitions. If the topic was not in the state, it is added, as one that mirrord has not "
        "created."
    ),
    core.ConfigsSynced: (
        "The fact does not change the state. It is recorded so that `mirrord ledger show` can print it."
    ),
    core.TopicDeletionPlanned: (
        "The fact takes effect if mirrord created the target topic and no deletion of the topic is planned yet. It "
        "sets the time of the deletion."
    ),
    core.TopicDeletionWithdrawn: (
        "The fact takes effect if a deletion of the target topic is planned. It removes the time of the deletion."
    ),
    core.TopicDeleted: (
        "The fact takes effect if the target topic is in the state. It removes the topic from the state."
    ),
    core.CopyForgotten: (
        "The fact takes effect if there is anything to remove. It removes the lanes between the two topics with "
        "their resume positions, and the target topic. If the source topic has no other lanes, it also removes the "
        "name that `CopyNamed` has given to the copy. The state keeps the names of the last 1,000 source topics "
        "whose lanes were removed in this way."
    ),
    core.CopyNamed: (
        "The fact takes effect if the copy of this source topic has no name yet, and no copy of another source "
        "topic has this name. The state keeps the name until `CopyForgotten`."
    ),
    core.LaneOpened: (
        "The fact takes effect if the lane is not in the state yet. It adds the lane, with grant 0, no runs and no "
        "verdicts."
    ),
    core.LaneTaken: (
        "The fact takes effect if `grant` is one more than the lane's current grant. It sets the lane's grant, "
        "replicator and times."
    ),
    core.PolicyChanged: "The fact sets the policy of the lane.",
    core.SourceRun: (
        "The fact adds the runs to the source side of the offset map. Earlier runs that begin at or above the "
        "ordinal of an added run are dropped. The verdicts are added to the counts of verdicts. What was recorded "
        "for reassigned ordinals is dropped as well: holes, displaced ordinals, leader epochs, and the proof by "
        "audits if it covers one of these ordinals. A `truncated` verdict also drops the seeks, quarantine entries "
        "and repairs that reach into the truncated offsets."
    ),
    core.TargetRun: (
        "The fact adds the run to the target side of the offset map. Earlier runs that begin at or above "
        "`ordinal`, or at or above `offset`, are dropped, because the target log has gone back since they were "
        "recorded. Displaced ordinals at or above `ordinal` are dropped, and those in `displaced` are added. The proof "
        "by audits is dropped if it covers `ordinal`."
    ),
    core.VerdictGiven: (
        "The fact adds the verdicts to the counts of verdicts. A newer verdict overrides an older one on the same "
        "offsets, unless the older one is `truncated`. The state keeps the exact ranges of the newest 128 "
        "verdicts."
    ),
    core.HoleFound: (
        "The fact adds the hole. The proof by audits is dropped if it covers `first`. If an older hole has records "
        "that were to be copied again at or above the ordinal `again`, they follow later: the `until` of the older "
        "hole is raised to at least the one of this fact."
    ),
    core.LaneHalted: "The fact marks the lane as halted, and replaces an earlier fact of this kind.",
    core.LaneResumed: ("The lane is no longer halted. Its quarantine entries that wait for a decision are removed."),
    core.TakeoverChecked: (
        "The fact replaces the result of the last comparison. If ordinals were reassigned (`SourceRun.regiven`), "
        "and the fact covers the lowest of them without a difference, the note about these ordinals is removed. "
        "With `more`, it is removed only for the ordinals up to `last`."
    ),
    core.MapRebuilt: (
        "The fact adds a hole that has no ordinals, after which the records that the target lacked follow. It "
        "removes the result of the last comparison and the note about reassigned ordinals. The proof by audits is "
        "dropped if it covers `first`. An older hole without ordinals at the same place is replaced. If another "
        "older hole has records that were to be copied again at or above the ordinal `first`, the `until` of this "
        "hole is raised to at least the one of the fact."
    ),
    core.CopyInherited: "The fact is kept in the state of the lane.",
    Quarantined: (
        "The fact adds an item to the quarantine of the lane, in place of earlier items on the same offsets. "
        "Adjacent records that were skipped without a decision of an operator are merged into one item. The state "
        "keeps the newest 128 items of a lane."
    ),
    SeekDone: (
        "The fact removes the pending seeks that reach no further than `end`. If one of them ends exactly there "
        "and offsets were skipped, the state keeps the skipped range."
    ),
    CopyingPaused: (
        "The fact takes effect unless exactly this flow, topic or partition is already paused. It adds the pause. "
        "The supervisor then drains the lanes concerned."
    ),
    CopyingResumed: ("The fact takes effect if exactly this flow, topic or partition is paused. It removes the pause."),
    LanePinned: (
        "The fact takes effect unless the partition is already pinned to this replicator. It replaces an earlier "
        "pin of the partition."
    ),
    LaneUnpinned: "The fact takes effect if the partition is pinned. It removes the pin.",
    HostDrained: (
        "The fact takes effect unless the replicator is already drained. It adds the drain, and the replicator "
        "gets no new lanes."
    ),
    HostRestored: "The fact takes effect if the replicator is drained. It removes the drain.",
    QuarantineSkipped: (
        "The fact takes effect if a quarantine entry of the lane waits for a decision and begins within the range. "
        "It replaces this entry by one that is skipped."
    ),
    QuarantineReplayed: (
        "The fact takes effect if a quarantine entry of the lane waits for a decision and begins within the range. "
        "It removes this entry, and the lane tries to copy the records again."
    ),
    LaneSought: (
        "The fact takes effect unless another seek of the lane reaches at least as far. It adds a pending seek."
    ),
    RangeAudited: (
        "The fact takes effect if it extends the proven range of the lane without a gap, or proves the same range "
        "more closely. It sets the proven range. If parts of this range were compared at different levels, the "
        "lower level applies to the whole range."
    ),
    RangeRepaired: (
        "The fact takes effect unless the state already says of all these offsets that they were repaired into "
        "this topic. It adds the range and merges it with adjacent ones. Where it overlaps older ranges, it "
        "overrides them. The state keeps the 128 ranges of a lane with the highest offsets."
    ),
    CompactionBegan: (
        "The fact takes effect if `number` is higher than that of the last compaction. From then on, only "
        "`MapCompacted` facts with this number take effect."
    ),
    MapCompacted: (
        "The fact takes effect if `number` is that of the last `CompactionBegan`, and no run at or below the last "
        "of these runs has been recorded since then. Later snapshots of the lane refer to the files instead of "
        "containing the runs."
    ),
    JobBegan: (
        "The fact takes effect if `number` is one more than that of the last job of its kind. It replaces that job "
        "in the state."
    ),
    JobRenewed: (
        "The fact takes effect while the job is the last of its kind and has not ended. It counts as a sign of "
        "life, and sets the progress of the job."
    ),
    JobEnded: (
        "The fact takes effect while the job is the last of its kind and has not ended. It sets the outcome. If "
        "the job was successful, it also sets the time of the last success."
    ),
}
"""What the fold (`mirrord.ledger.fold`) does with each kind of fact under the current lease."""

SHARED = {
    "end": "End of the range of source offsets (exclusive).",
    "epoch": "Epoch of the lease.",
    "grant": "Grant under which the replicator hosts the lane.",
    "holder": "The process that holds the lease, and how to reach it.",
    "job": "Kind of the job.",
    "lane": "Id of the lane.",
    "number": "Number of the job, which rises by one with each job of its kind.",
    "origin": "Who gave the command, when, and why.",
    "partition": "Number of the partition, which is the same on both sides.",
    "pid": "Process id.",
    "producer_epoch": "Epoch of the producer id.",
    "producer_id": "Producer id of the lane.",
    "replicator": "Name of the replicator.",
    "source_cluster": "Cluster id of the source.",
    "source_topic": "Name of the source topic.",
    "source_topic_id": "Topic id of the source topic.",
    "start": "First source offset of the range.",
    "target_cluster": "Cluster id of the target.",
    "target_topic": "Name of the target topic.",
    "target_topic_id": "Topic id of the target topic.",
}
"""The meanings of fields that have no docstring in their struct."""

_HEAD = """\
# Facts of the ledger

Generated from the structs in `mirrord/ledger/facts` (`python -m mirrord.ledger.facts.reference_page`). Do not edit this
page. [The ledger](../explanation/ledger.md) explains what a ledger is and how facts become state.

`mirrord ledger show` prints the facts of a flow. The topic `mirrord.<flow>.ledger` holds one entry per record: a
version byte, then a msgpack array with the fields of [`Entry`](#entry) in the order shown here. A fact is an array as
well: its tag, then its fields. At the end of an array, fields that have a default may be missing. Times whose names end
in `_ms` are in milliseconds; wall-clock times count from the Unix epoch. Ids are strings: `ClusterId` and `TopicId` are
Kafka's, and a `LaneId` is `<source topic id>.<partition>.<target topic id>`.

The fold ignores an entry of an older lease epoch, and an entry that it has folded already. No fact takes effect before
`FlowOpened`. All facts after it, except `LeaseTaken`, take effect only under the current lease, and only until this
lease is released. The facts of [audits, compactions and jobs](#audits-compactions-and-jobs) also take effect after
that. A fact about a lane or a topic that is not in the state does not take effect, unless the fact itself adds it. A
fact that does not take effect changes nothing.
"""


def facts(union: Any) -> tuple[type[msgspec.Struct], ...]:
    """Return the structs of a union, in its order."""
    return tuple(get_args(union))


def parts() -> list[type[msgspec.Struct]]:
    """Return the structs that facts contain, in alphabetical order of their names."""
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
            lines += [f"### {struct.__name__}", "", f"Tag in the ledger: `{struct.__struct_config__.tag}`.", ""]
            lines += _struct(struct, known)
    lines += ["## Parts", "", "Facts contain these structs. In the ledger, they are arrays without a tag.", ""]
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
