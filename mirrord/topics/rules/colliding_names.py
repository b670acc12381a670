"""Finds topic names that collide in Kafka: it refuses a topic whose name differs from that of another one only in "."
and "_"."""

from collections.abc import Iterable


def plain_form(topic: str) -> str:
    """Return the form of a topic's name by which Kafka finds collisions.

    Kafka refuses a topic if the name of an existing topic has the same form
    (org.apache.kafka.common.internals.Topic.hasCollision).
    """
    return topic.replace(".", "_")


def plain_forms(topics: Iterable[str]) -> set[str]:
    """Return the `plain_form` of each of these topic names."""
    return {plain_form(topic) for topic in topics}
