"""Lists a flow's source topics for operators. Each line contains the target topic of one source topic, or the reason
why the source topic is not copied."""

from collections.abc import Iterable
from typing import Literal

import msgspec

from mirrord.kafka.rules.topic import Topic
from mirrord.ledger.standing_orders import Orders, describe_origin
from mirrord.topics.rules.topic_plan import TopicsPlan
from policies.selecting import Refusal, Selection

TopicStateName = Literal["copied", "to-create", "to-grow", "fault", "recorded", "paused", "ended"] | Refusal
"""State of a source topic:

- "copied": the topic is being copied.
- "to-create": the target topic must be created.
- "to-grow": the target topic must get more partitions.
- "fault": the topic is selected, but cannot be copied.
- "recorded": the topic is known only from the ledger, because the source was not queried.
- "paused": an operator has paused the whole topic or the flow.
- Any other state: the topic is not selected. `policies.selecting.Refusal` describes these states.
"""


class TopicLine(msgspec.Struct, frozen=True, order=True):
    """One source topic. `target` is the name of its target topic, or an empty string if the topic is not copied. `why`
    is one line that explains the state, or an empty string."""

    source: str
    target: str
    partitions: int
    state: TopicStateName
    why: str = ""


def topic_lines(topics: Iterable[Topic], plan: TopicsPlan, selection: Selection, target: str) -> list[TopicLine]:
    """Return a line for each of these source topics, sorted by name. `target` is the alias of the target cluster."""
    create = {step.source.name for step in plan.create}
    grow = {step.source.name: step.target.partitions for step in plan.grow}
    lines: list[TopicLine] = []
    for topic in sorted(topics):
        name, partitions = topic.name, topic.partitions
        refusal = selection.refusal(name)
        if refusal is not None:
            lines.append(TopicLine(name, "", partitions, refusal, _why_not(refusal, name, selection, target)))
        elif name in plan.unanswered:
            lines.append(TopicLine(name, "", partitions, "fault", plan.unanswered[name]))
        elif name not in plan.names:
            # Discovery leaves out the topics whose copying has ended (`mirrord.topics.discovery`).
            lines.append(TopicLine(name, "", partitions, "ended", "a failover has ended its copying"))
        elif name in plan.faults:
            lines.append(TopicLine(name, plan.names[name], partitions, "fault", plan.faults[name]))
        elif name in create:
            lines.append(TopicLine(name, plan.names[name], partitions, "to-create", "the target topic is missing"))
        elif name in grow:
            why = f"the target topic has {grow[name]} partitions"
            lines.append(TopicLine(name, plan.names[name], partitions, "to-grow", why))
        else:
            lines.append(TopicLine(name, plan.names[name], partitions, "copied", plan.remarks.get(name, "")))
    return lines


def with_orders(line: TopicLine, orders: Orders) -> TopicLine:
    """Return the line, with a note added if an operator has paused the flow, the topic or some of its partitions."""
    if not line.target:
        return line
    pause = orders.pause_of(line.source, -1)
    if pause is not None:
        what = "it" if pause.topic else "the flow"
        why = f"{what} was paused {describe_origin(pause.origin)}"
        state = "paused" if line.state in {"copied", "recorded"} else line.state
        return msgspec.structs.replace(line, state=state, why="; ".join(filter(None, (line.why, why))))
    own = [each for each in orders.paused.values() if each.topic == line.source]
    if not own:
        return line
    paused = ", ".join(f"{each.partition} {describe_origin(each.origin)}" for each in own)
    return msgspec.structs.replace(line, why="; ".join(filter(None, (line.why, f"partitions paused: {paused}"))))


def _why_not(refusal: Refusal, topic: str, selection: Selection, target: str) -> str:
    match refusal:
        case "internal":
            return "it, or its target topic, has a name that belongs to Kafka, MirrorMaker 2 or mirrord"
        case "excluded":
            return f'the pattern "{selection.excluded_by(topic)}" of exclude matches it'
        case "not-included":
            return "no pattern of topics matches the whole name"
        case "cycle":
            return f"its name says that it came from {target}"
        case "left-out" | "fault":
            return selection.reason(topic)
