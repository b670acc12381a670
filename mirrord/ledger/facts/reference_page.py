"""Generates docs/reference/facts.md from the structs of the facts, their docstrings, and the effects that are listed in
this module."""

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
from mirrord.ledger.facts.recovery import CopyingEnded, RecoveryBegan, RecoveryFact, RecoveryFinished, RecoveryStepDone
from mirrord.ledger.facts.seeks import LaneSought, SeekDone

LINE = 120

SECTIONS: tuple[tuple[str, str, Any], ...] = (
    ("Flow", "", core.FlowFact),
    ("Target topics", "Changes to target topics that mirrord has planned or made.", core.TopicFact),
    (
        "Lanes",
        "All facts in this section except `LaneOpened` and `LaneTaken` take effect only if `grant` is the lane's "
        "current grant. [What was not copied](../explanation/gaps.md) explains the possible reasons in verdicts.",
        core.LaneFact,
    ),
    (
        "Operator commands",
        "Operator commands carry no grant, because the command line does not know a lane's grant. The replicator that "
        "hosts the lane reads the command from the ledger and carries it out.",
        OrderFact | QuarantineSkipped | QuarantineReplayed | LaneSought,
    ),
    (
        "Failovers",
        "These facts take effect only if `number` is that of the failover that is in progress, except for "
        "`RecoveryBegan`. `mirrord failover` writes them. A ledger with such facts cannot be read by older versions of "
        "mirrord.",
        RecoveryFact,
    ),
    (
        "Audits, compactions and jobs",
        "Audits, compactions and jobs hold no lease. Their facts take effect if their entry has the epoch of the "
        "current lease, even if this lease has been released. These facts do not affect copying.",
        AuditFact | CompactionBegan | MapCompacted | JobFact,
    ),
)
"""The sections of the page. Each section has a title, an introduction and a union of the types of its facts. Every
fact is in exactly one section."""

EFFECTS: dict[type, str] = {
    core.FlowOpened: (
        "The fact takes effect if no earlier `FlowOpened` has taken effect. It sets the name of the flow and the ids "
        "of its clusters."
    ),
    core.LeaseTaken: (
        "The fact takes effect if `epoch` is one more than the current epoch and equals the lease epoch of the entry. "
        "It sets the holder and the length of the lease. If it does not take effect, neither do the facts that follow "
        "it in the same entry."
    ),
    core.LeaseContinued: (
        "The fact takes effect if `epoch` is the current epoch, `turn` is one more than the number of the current "
        "holder's process, and `holder` names the same daemon as the current holder. It replaces the holder, and sets "
        "the number of its process to `turn`."
    ),
    core.LeaseReleased: (
        "The fact takes effect if `epoch` is the current epoch. Until the next `LeaseTaken`, only the facts of "
        "audits, repairs, compactions and jobs take effect."
    ),
    core.TargetProbed: "The fact replaces the result of the previous probe.",
    core.ConfigChanged: (
        "The fact adds the start offsets in `starts` to the state. The start offset of a partition is removed when the "
        "lane of the partition records its first run. If `selected` is set, it replaces the rules that select "
        "topics. The lines in `changes` are not kept in the state."
    ),
    core.CommandGiven: "The fact has no effect on the state.",
    core.LedgerSigned: "The fact has no effect on the state.",
    core.RecordSkipped: (
        "The fact takes effect under every lease, and has no effect on the state. Readers of the ledger skip the "
        "record at `offset` if it cannot be read."
    ),
    core.StateRecordSkipped: "The fact takes effect under every lease, and has no effect on the state.",
    core.AclsPlanned: "The fact replaces the set of planned ACLs.",
    core.AclsSynced: (
        "The fact adds the ACLs in `added` to the set of ACLs that mirrord has added, and removes the ACLs in "
        "`removed` from this set. It also clears the set of planned ACLs."
    ),
    core.TopicCreated: (
        "The fact takes effect if the target topic is not in the state yet. It adds the topic as one that mirrord "
        "created."
    ),
    core.PartitionsGrown: (
        "The fact takes effect if the target topic is not in the state, or if its number of partitions in the state "
        "is lower than `partitions`. It sets the number of partitions. If the topic was not in the state, it is added "
        "as one that mirrord did not create."
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
        "The fact takes effect if there is anything to remove. It removes the target topic, and the lanes between the "
        "two topics with their resume positions. If the source topic has no other lanes, it also removes the name "
        "that `CopyNamed` has given to the copy. The state keeps the names of the last 1,000 source topics whose "
        "lanes were removed in this way, and counts the source offsets that these lanes had lost, by reason."
    ),
    core.CopyNamed: (
        "The fact takes effect if the copy of this source topic has no name yet, and if no copy of another source "
        "topic has this name. The state keeps the name until a `CopyForgotten` removes it."
    ),
    core.LaneOpened: (
        "The fact takes effect if the lane is not in the state yet. It adds the lane, with grant 0, no runs and no "
        "verdicts."
    ),
    core.LaneTaken: (
        "The fact takes effect if `grant` is one more than the lane's current grant. It sets the lane's grant and "
        "replicator. It also sets the length of the lease and the request timeout to the values in `times`."
    ),
    core.PolicyChanged: (
        "In the state of the lane, the fact replaces the fingerprint of the isolation level, the filter and the "
        "transform."
    ),
    core.SourceRun: (
        "The fact adds the runs to the source side of the offset map, and the verdicts to the counts of verdicts. The "
        "state drops everything that was recorded earlier for ordinals at or above the lowest ordinal of the new runs: "
        "runs, holes, displaced ordinals and leader epochs. If the lane's proven range (`RangeAudited`) ends above "
        "this ordinal, the proven range is dropped. A `truncated` verdict also drops the seeks, quarantined ranges and "
        "repairs that reach into the truncated offsets. A skipped range whose leader epochs are known "
        "(`SeekDone.epochs`) instead ends where the verdict begins."
    ),
    core.TargetRun: (
        "The fact adds the run to the target side of the offset map. Earlier runs that begin at or above `ordinal`, "
        "or at or above `offset`, are dropped, because they describe records that the target log has lost. Displaced "
        "ordinals at or above `ordinal` are dropped, and those in `displaced` are added. If the lane's proven range "
        "(`RangeAudited`) ends above `ordinal`, the proven range is dropped. If the state contains the lowest ordinal "
        "that was assigned again (`SourceRun.regiven`), and this ordinal is below `in_doubt_below`, then "
        "`in_doubt_below` becomes the end of the ordinals in doubt. A later run with `regiven` removes this end."
    ),
    core.VerdictGiven: (
        "The fact adds the verdicts to the counts of verdicts. A newer verdict overrides an older one on the same "
        "offsets, unless the older one is `truncated`. The state keeps the exact ranges of the newest 128 "
        "verdicts."
    ),
    core.HoleFound: (
        "The fact adds the hole. If the lane's proven range (`RangeAudited`) ends above `first`, the proven range is "
        "dropped. If records of an older hole still have to be copied again under ordinals at or above `again`, they "
        "are now copied after the records of the new hole. The fold therefore raises the `until` of the older hole "
        "(the ordinal at which the lane continues) to at least the `until` of this fact."
    ),
    core.LaneHalted: "The fact marks the lane as halted. It replaces any earlier fact of this kind.",
    core.LaneResumed: (
        "The fact marks the lane as no longer halted, and removes those of its quarantined ranges that are waiting "
        "for a decision."
    ),
    core.TakeoverChecked: (
        "The fact replaces the result of the previous comparison. The state may also contain the lowest ordinal that "
        "was assigned again (`SourceRun.regiven`): a different record may already have been sent to the target under "
        "this ordinal. If the comparison covered this ordinal and found no difference, the ordinal is removed from "
        "the state. If `more` is true, however, later ordinals still have to be compared, and the ordinal after "
        "`last` takes the place of the removed one."
    ),
    core.MapRebuilt: (
        "The fact adds an entry to the lane's holes, although no ordinal is missing. The entry only shows that "
        "records are copied again under the ordinals after `last`, before the lane continues at `until`. It replaces "
        "earlier entries of this kind that begin at or above `first`. If records of a real, earlier hole still have "
        "to be copied again under ordinals at or above `first`, the fold raises the `until` of that hole to at least "
        "the `until` of this fact, as for `HoleFound`.\n\n"
        "The fact also removes everything in the state that depends on the previous map: the result of the latest "
        "comparison (`TakeoverChecked`), the lowest ordinal that was assigned again (`SourceRun.regiven`), and the "
        "lane's proven range (`RangeAudited`) if it ends above `first`."
    ),
    core.CopyInherited: "The fact is kept in the state of the lane.",
    Quarantined: (
        "The fact adds an item to the quarantine of the lane, in place of earlier items for the same offsets. "
        "Adjacent records that were skipped without an operator's decision are merged into one item. The state keeps "
        "the newest 128 items of a lane."
    ),
    SeekDone: (
        "The fact removes the pending seeks that end at or below `end`. If one of them ends at `end` and the lane has "
        "skipped offsets, the state keeps the skipped range [start, end)."
    ),
    CopyingPaused: (
        "The fact takes effect unless exactly this flow, topic or partition is already paused. It adds the "
        "pause. The supervisor then drains the affected lanes."
    ),
    CopyingResumed: (
        "The fact takes effect if exactly this flow, topic or partition is paused. It removes this pause."
    ),
    LanePinned: (
        "The fact takes effect unless the partition is already pinned to this replicator. It replaces an earlier "
        "pin of the partition."
    ),
    LaneUnpinned: "The fact takes effect if the partition is pinned. It removes the pin.",
    HostDrained: (
        "The fact takes effect unless the replicator is already drained. It adds the drain. From then on, the "
        "replicator gets no new lanes."
    ),
    HostRestored: "The fact takes effect if the replicator is drained. It removes the drain.",
    QuarantineSkipped: (
        "The fact takes effect if a quarantined range of the lane is waiting for a decision and begins within [start, "
        "end). It replaces this range with the range [start, end), which is marked as skipped."
    ),
    QuarantineReplayed: (
        "The fact takes effect if a quarantined range of the lane is waiting for a decision and begins within [start, "
        "end). It removes this range, and the lane tries to copy the records again."
    ),
    LaneSought: (
        "The fact takes effect unless an earlier seek of the lane reaches at least as far. It adds a pending seek."
    ),
    RecoveryBegan: (
        "The fact takes effect if `number` is one more than that of the previous failover, if no failover is in "
        "progress, and if at least one of the topics is still copied. With the mode `source-lost`, the daemon stops "
        "the lanes of these topics. The fact removes a cancelled failover from the state."
    ),
    RecoveryStepDone: (
        "The fact takes effect if this step is not done yet. It adds the step. After the step `catch up`, the daemon "
        "stops the lanes of the failover's topics. After the step `settle`, the failover can no longer be cancelled."
    ),
    CopyingEnded: (
        "The fact takes effect if the copying has not been ended yet. It adds the lost ranges. From then on, facts "
        "about lanes of these topics have no effect, no deletion of their target topics can be planned, and every "
        "daemon refuses to copy them."
    ),
    RecoveryFinished: (
        "The fact takes effect if the copying has ended (`CopyingEnded`) and `cancelled` is false. With `cancelled`, "
        "it takes effect if the copying has not ended and the step `settle` is not done. Another failover can then "
        "begin."
    ),
    RangeAudited: (
        "The fact takes effect if it extends the proven range of the lane without a gap, or proves the same range at "
        "the level `records` instead of `digest`. It sets the proven range. If parts of this range were compared at "
        "different levels, the lower level (`digest`) applies to the whole range."
    ),
    RangeRepaired: (
        "The fact takes effect unless the state already contains a repair of all these offsets to the same topic. It "
        "adds the range and merges it with adjacent ranges. Where the new range overlaps older ranges, it replaces "
        "them. For each lane, the state keeps the 128 ranges with the highest offsets."
    ),
    CompactionBegan: (
        "The fact takes effect if `number` is higher than that of the most recent compaction. From then on, only "
        "`MapCompacted` facts with this number take effect."
    ),
    MapCompacted: (
        "The fact takes effect if `number` is that of the most recent `CompactionBegan`, and if every run that was "
        "recorded after this `CompactionBegan` begins above the ordinal at which the last moved run begins. Later "
        "snapshots of the lane refer to the files instead of containing the moved runs."
    ),
    JobBegan: (
        "The fact takes effect if `number` is one more than the number of the most recent job of this kind. It "
        "replaces that job in the state."
    ),
    JobRenewed: (
        "The fact takes effect only if the job is the most recent one of its kind and has not ended. It counts as a "
        "heartbeat, and sets the progress of the job."
    ),
    JobEnded: (
        "The fact takes effect only if the job is the most recent one of its kind and has not ended. It sets the "
        "outcome. If the job was successful, the fact also sets the time of the latest success. If `drill` is set, it "
        "replaces the receipt of the latest drill."
    ),
}
"""The effect of each kind of fact on the state (`mirrord.ledger.fold`), if its entry has the epoch of the current
lease."""

SHARED = {
    "end": "End of the range of source offsets (exclusive).",
    "epoch": "Epoch of the lease.",
    "grant": "Grant under which the replicator hosts the lane.",
    "holder": "The process that holds the lease, and how to reach it.",
    "job": "Kind of the job.",
    "lane": "Id of the lane.",
    "number": "Number of the job, which increases by one with each job of the same kind.",
    "origin": "Who gave the command, when and why.",
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
version byte, followed by a msgpack array with the fields of [`Entry`](#entry) in the order shown here. A fact is also
an array: its tag, followed by its fields. Fields with a default may be missing from the end of an array. Fields whose
names end in `_ms` are times in milliseconds; wall-clock times count from the Unix epoch. Ids are strings: `ClusterId`
and `TopicId` are assigned by Kafka, and a `LaneId` is `<source topic id>.<partition>.<target topic id>`.

The fold ignores entries from older lease epochs, and entries that it has already folded. No fact takes effect before
`FlowOpened`. All facts after it, except `LeaseTaken`, take effect only if their entry has the epoch of the current
lease and this lease has not been released. The facts of [audits, compactions and jobs](#audits-compactions-and-jobs)
take effect even if the current lease has been released. A fact about a lane or a topic that is not in the state does
not take effect, unless the fact itself adds it. A fact that does not take effect changes nothing.
"""


def facts(union: Any) -> tuple[type[msgspec.Struct], ...]:
    """Return the structs of a union, in the order of the union."""
    return tuple(get_args(union))


def parts() -> list[type[msgspec.Struct]]:
    """Return the structs that occur inside facts, in alphabetical order by name."""
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
    """Return the meaning of each field: the docstring of the field, or the shared meaning. Raises KeyError if there is
    neither."""
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
    lines += [
        "## Parts",
        "",
        "Facts contain these structs. In the ledger, they are arrays without a tag, except for "
        "`DrillReceipt` and `DrillStage`, which are maps.",
        "",
    ]
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
    """Return the text with a link for each struct that the text names."""

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
    """Return a description of a type in words."""
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
