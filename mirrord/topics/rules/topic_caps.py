"""Limits the topics and partitions that one flow copies (`limits.topics`, `limits.partitions`).

Each lane needs memory, requests and ledger entries, and whoever controls the source can create any number of
partitions. The limits never stop what is already copied: a topic that has a target topic keeps its partitions, even if
a limit is lowered. Only new topics and added partitions are left out.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from mirrord.config.limits import LimitsConfig
from mirrord.kafka.rules.topic import Topic
from mirrord.model.names import TopicId

MOST_SHOWN = 10
"""Maximum number of topics beyond the limits that are reported one by one."""


class CappedTopics(NamedTuple):
    """The topics that a flow copies, and a line for operators about each one that it does not copy completely."""

    topics: tuple[Topic, ...]
    """Sorted by name. A topic whose added partitions are left out has only as many partitions as are copied."""
    lines: Mapping[str, str]


def within_limits(topics: Iterable[Topic], copied: Mapping[TopicId, int], limits: LimitsConfig) -> CappedTopics:
    """Return which of the selected topics a flow copies.

    `copied` contains the number of partitions of each topic that is already copied. These topics come first,
    then the added partitions of these topics, then new topics. Within each group, the order is the order of the names,
    and a topic that does not fit does not keep out a smaller one that does.
    """
    ordered = sorted(topics)
    kept = {topic.name: min(topic.partitions, copied[topic.topic_id]) for topic in ordered if topic.topic_id in copied}
    most_topics, free = limits.topics, limits.partitions - sum(kept.values())
    left_out: dict[str, str] = {}
    for topic in ordered:
        if topic.name in kept and (more := topic.partitions - kept[topic.name]):
            if more <= free:
                kept[topic.name] += more
                free -= more
            else:
                left_out[topic.name] = (
                    f"{more} partitions that were added to it are not copied: limits.partitions is {limits.partitions}"
                )
    for topic in ordered:
        if topic.name in kept:
            continue
        if len(kept) >= most_topics:
            left_out[topic.name] = f"the topic is not copied: limits.topics is {most_topics}"
        elif topic.partitions > free:
            left_out[topic.name] = (
                f"the topic, with {topic.partitions} partitions, is not copied: limits.partitions is "
                f"{limits.partitions}"
            )
        else:
            kept[topic.name] = topic.partitions
            free -= topic.partitions
    capped = tuple(
        topic if topic.partitions == kept[topic.name] else msgspec.structs.replace(topic, partitions=kept[topic.name])
        for topic in ordered
        if topic.name in kept
    )
    return CappedTopics(capped, _shortened(left_out))


def _shortened(lines: Mapping[str, str]) -> dict[str, str]:
    names = sorted(lines)
    shown = {name: lines[name] for name in names[:MOST_SHOWN]}
    if len(names) > MOST_SHOWN:
        shown[names[MOST_SHOWN - 1]] += f" (and {len(names) - MOST_SHOWN} more topics are not copied completely)"
    return shown
