"""Finds hazards that MirrorMaker 2 silently accepts: misleading topic names, target topics that already contain other
data, and target topics with two writers."""

from collections.abc import Container, Iterable, Iterator, Mapping

from mirrord.config.cross_checks import goes_back
from mirrord.config.schema import FlowConfig
from mirrord.kafka.rules.topic import Topic
from mirrord.model.findings import Finding
from mirrord.model.names import Alias, TopicId
from mirrord.topics.rules.topic_list import TopicLine
from policies.flow_policies import naming_of

SHOWN = 3
"""Maximum number of topic names in one finding or status line."""


def topic_hazards(
    flow: FlowConfig,
    lines: Iterable[TopicLine],
    target: Mapping[str, Topic],
    aliases: Iterable[Alias],
) -> Iterator[Finding]:
    """Yield the findings that can be determined from topic names alone.

    `lines` describe the flow's source topics, and `target` contains the topics of the target cluster by name. `aliases`
    are the aliases of all clusters in the configuration.
    """
    known = set(aliases)
    strange: list[str] = []
    names = naming_of(flow)
    for line in lines:
        where = f"{flow.source}: topic {line.source}"
        if line.state == "fault":
            yield Finding(
                severity="error", flow=flow.name, where=where, what=line.why,
                do="exclude it in one of the flows, or give one of them a different naming"
                if line.target
                else "exclude it, or fix the policy",
            )  # fmt: skip
        elif line.state == "cycle":
            if is_named_like_copy(flow, line.source, target):
                yield Finding(
                    severity="warning", flow=flow.name, where=where,
                    what=f"it is not copied, because its name says that it came from {flow.target}; but {flow.target} "
                    "has no such topic, so it is probably a local topic",
                    do=f'rename it, or use naming = "identity" or a separator other than "{flow.separator}"',
                )  # fmt: skip
        elif line.target and flow.naming == "prefix":
            if (hops := names.hops(line.source)) and not known.issuperset(hops):
                strange.append(line.source)
            if line.state == "copied" and line.why:
                yield Finding(severity="warning", flow=flow.name, where=where, what=line.why)
    if strange:
        yield Finding(
            severity="note", flow=flow.name, where=f"{flow.source}: {_names(strange, 'topic')}",
            what=f'the separator "{flow.separator}" is part of the name: MirrorMaker 2 takes the part before '
            "it for the alias of a cluster; mirrord copies such a topic like any other",
        )  # fmt: skip


def is_named_like_copy(flow: FlowConfig, topic: str, target: Container[str]) -> bool:
    """Return whether a source topic only seems to be a copy of a topic of the target cluster. With the naming `prefix`,
    this is the case if its name consists of the target's alias, the separator and a name that no topic of the target
    cluster has."""
    before = flow.target + flow.separator
    return flow.naming == "prefix" and topic.startswith(before) and topic.removeprefix(before) not in target


def status_hazards(
    flow: FlowConfig, source: Iterable[str], target: Container[str], begins: Mapping[str, int]
) -> Iterator[str]:
    """Yield one line for each kind of hazard that the status of a running flow shows. `source` and `target` are the
    topic names of the two clusters. `begins` contains the target offset of the first copied record, by target
    partition."""
    local = sorted(topic for topic in source if is_named_like_copy(flow, topic, target))
    if local:
        line = f"not copied, because the name looks like a copy from {flow.target}, which has no such topic"
        yield f"{_names(local, 'topic')}: {line}"
    foreign = sorted(partition for partition, offset in begins.items() if offset)
    if foreign:
        yield f"{_names(foreign, 'target partition')}: held other records before the first copied record"


def foreign_content(flow: FlowConfig, held: Mapping[str, int], ours: Mapping[str, TopicId]) -> Iterator[Finding]:
    """Yield a finding for each target topic that contains records although this flow has never written to it.

    `held` is the number of offsets between the log start and the log end, by target topic. `ours` are the target topics
    in the flow's ledger.
    """
    for topic, offsets in held.items():
        if offsets and topic not in ours:
            # With naming = "identity", other clients or other flows may deliberately write to the same target topic.
            yield Finding(
                severity="note" if flow.naming == "identity" else "warning",
                flow=flow.name, where=f"{flow.target}: topic {topic}",
                what=f"it exists and holds {offsets} offsets that this flow did not write; copied records follow these",
                do="delete it if it is left over (from MirrorMaker 2, or from a former flow), or choose other names",
            )  # fmt: skip


def other_writers(
    flow: FlowConfig, targets: Mapping[str, str], others: Mapping[str, Iterable[str]]
) -> Iterator[Finding]:
    """Yield a finding for each flow outside this configuration that writes to target topics of this flow.

    `targets` maps the target topics of this flow to their source topics. `others` contains the target topics of the
    other flows, by flow name.
    """
    for other, topics in others.items():
        both = sorted(set(topics) & targets.keys())
        if both:
            yield Finding(
                severity="error", flow=flow.name, where=f"{flow.target}: {_names(both, 'topic')}",
                what=f"according to its ledger, the flow {other} also copies into it: two sources for one target name",
                do=f"stop the flow {other} for good and delete its ledger, or choose different names",
            )  # fmt: skip


def deletions_both_ways(flow: FlowConfig, others: Iterable[FlowConfig]) -> Iterator[Finding]:
    """Yield a finding if `propagate_deletes` is set but has no effect, because another flow copies topics with the same
    names in the opposite direction."""
    back = [other.name for other in others if goes_back(flow, other)]
    if flow.propagate_deletes and back:
        yield Finding(
            severity="warning", flow=flow.name, where="propagate_deletes",
            what=f"it has no effect: the flow {back[0]} copies the same names back, so a topic holds the records of "
            "both clusters, and a deletion would delete those of the other one",
            do="set it to false, and delete topics on both clusters",
        )  # fmt: skip


def _names(names: list[str], kind: str) -> str:
    shown = ", ".join(names[:SHOWN])
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{kind}{'' if len(names) == 1 else 's'} {shown}{more}"
