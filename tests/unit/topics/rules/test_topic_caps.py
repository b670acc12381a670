"""The limits on a flow's topics and partitions."""

import random

from mirrord.config.limits import LimitsConfig
from mirrord.kafka.rules.topic import Topic
from mirrord.model.names import TopicId
from mirrord.topics.rules.topic_caps import within_limits


def topic(name: str, partitions: int = 1) -> Topic:
    return Topic(name, TopicId(name), partitions)


def capped(topics: list[Topic], copied: dict[str, int], topics_limit: int = 9, partitions_limit: int = 9):
    known = {topic(name).topic_id: partitions for name, partitions in copied.items()}
    found = within_limits(topics, known, LimitsConfig(topics=topics_limit, partitions=partitions_limit))
    return {each.name: each.partitions for each in found.topics}, dict(found.lines)


def test_new_topics_beyond_the_limits_are_left_out_and_reported() -> None:
    kept, lines = capped([topic("c"), topic("a"), topic("b")], {}, topics_limit=2)
    assert kept == {"a": 1, "b": 1}
    assert lines == {"c": "the topic is not copied: limits.topics is 2"}
    kept, lines = capped([topic("a", 5), topic("b", 6), topic("c", 4)], {})
    assert kept == {"a": 5, "c": 4}
    assert lines == {"b": "the topic, with 6 partitions, is not copied: limits.partitions is 9"}


def test_what_is_copied_stays_whatever_the_limits() -> None:
    kept, lines = capped([topic("a"), topic("y", 8), topic("z", 7)], {"y": 8, "z": 7}, topics_limit=1)
    assert kept == {"y": 8, "z": 7}
    assert lines == {"a": "the topic is not copied: limits.topics is 1"}
    # A target topic may have more partitions than its source topic.
    assert capped([topic("y", 3), topic("a", 6)], {"y": 20})[0] == {"a": 6, "y": 3}


def test_added_partitions_beyond_the_limit_are_left_out() -> None:
    kept, lines = capped([topic("a", 2), topic("z", 100_000)], {"z": 3})
    assert kept == {"a": 2, "z": 3}
    assert lines == {"z": "99997 partitions that were added to it are not copied: limits.partitions is 9"}
    assert capped([topic("a", 2), topic("z", 9)], {"z": 3}) == (
        {"z": 9},
        {"a": "the topic, with 2 partitions, is not copied: limits.partitions is 9"},
    )


def test_a_hundred_thousand_topics_give_ten_lines() -> None:
    kept, lines = capped([topic(f"t{number:06}") for number in range(100_000)], {}, topics_limit=100)
    assert len(kept) == 9
    assert len(lines) == 10
    assert list(lines.values())[-1].endswith("(and 99981 more topics are not copied completely)")


def test_the_limits_hold_and_the_choice_is_stable(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(300):
        topics = [topic(f"t{number}", chance.randrange(1, 6)) for number in range(chance.randrange(12))]
        limits = (chance.randrange(1, 8), chance.randrange(1, 20))
        kept, _ = capped(topics, {}, *limits)
        assert len(kept) <= limits[0]
        assert sum(kept.values()) <= limits[1]
        # Once these are copied, a topic that appears later takes the place of none.
        more = [*topics, topic("a", chance.randrange(1, 6))]
        assert kept.items() <= capped(more, kept, *limits)[0].items()
