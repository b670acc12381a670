"""Finds collisions of topic names. Kafka refuses to create a topic if its name differs from an existing topic's name
only in the use of "." and "_"."""

from collections.abc import Iterable


def plain_form(topic: str) -> str:
    """Return the form in which Kafka compares topic names to find collisions.

    Kafka refuses to create a topic if the name of an existing topic has the same form
    (org.apache.kafka.common.internals.Topic.hasCollision).
    """
    return topic.replace(".", "_")


def plain_forms(topics: Iterable[str]) -> set[str]:
    """Return the `plain_form` of each of these topic names, as a set."""
    return {plain_form(topic) for topic in topics}
