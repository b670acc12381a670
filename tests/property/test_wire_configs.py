"""Configs that topics share are decoded once; that must not change what is read."""

from hypothesis import given
from hypothesis import strategies as st

from mirrord.kafka.protocol.configs import Setting, TopicSettings, decode_describe
from mirrord.kafka.protocol.primitives import (
    INT8,
    INT16,
    INT32,
    NO_TAGS,
    NULL,
    Reader,
    compact_array,
    compact_nullable_string,
    compact_string,
)

NAMES = st.sampled_from(["a", "ab", "b", "cleanup.policy", "retention.ms"])
SETTINGS = st.dictionaries(
    NAMES, st.builds(Setting, st.none() | st.sampled_from(["", "1", "12"]), st.booleans(), st.booleans()), max_size=4
)
TOPICS = st.lists(st.builds(TopicSettings, st.text(max_size=3), st.just(0), st.none(), SETTINGS), max_size=30)


def encoded(topics: list[TopicSettings]) -> bytes:
    def setting(name: str, each: Setting) -> bytes:
        source = INT8.pack(1 if each.own else 5)
        flags = bytes([each.fixed]) + source + bytes([each.sensitive])
        rest = compact_array([]) + INT8.pack(2) + NULL + NO_TAGS
        return compact_string(name) + compact_nullable_string(each.value) + flags + rest

    answers = (
        INT16.pack(topic.error)
        + compact_nullable_string(topic.message)
        + INT8.pack(2)
        + compact_string(topic.topic)
        + compact_array(setting(name, each) for name, each in topic.settings.items())
        + NO_TAGS
        for topic in topics
    )
    return INT32.pack(0) + compact_array(answers) + NO_TAGS


@given(TOPICS)
def test_every_topic_has_its_own_settings(topics: list[TopicSettings]) -> None:
    data = encoded(topics)
    assert decode_describe(Reader(bytearray(b"before" + data + b"behind"), 6, 6 + len(data))) == topics


@given(TOPICS)
def test_topics_with_the_same_settings_share_them(topics: list[TopicSettings]) -> None:
    data = encoded([each for topic in topics for each in (topic, topic)])
    found = decode_describe(Reader(data))
    assert all(first.settings is second.settings for first, second in zip(found[::2], found[1::2], strict=True))
