"""Topic names that Kafka regards as the same, so that it refuses the second topic."""

from collections.abc import Iterable


def plain_form(topic: str) -> str:
    """Return the form by which Kafka compares names.

    Kafka refuses two topics whose names have the same form (org.apache.kafka.common.internals.Topic.hasCollision).
    """
    return topic.replace(".", "_")


def plain_forms(topics: Iterable[str]) -> set[str]:
    """Return the plain form of each topic."""
    return {plain_form(topic) for topic in topics}
