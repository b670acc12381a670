"""The interfaces that a class must implement so that a configuration can name it as a policy.

Such a class need not import anything from mirrord. The protocols here can be used with a type checker. mirrord creates
one object of the class for each flow, as `Class(source, target, **settings)`. The arguments are the aliases of the two
clusters, and the entries of the settings table next to the class's name in the configuration. The first two arguments
are positional, so their parameters may have any names. The settings are keyword arguments.

A method's result may depend only on its argument and on the arguments of the class, and the method must not block.
mirrord calls a method once for each name and uses the result until the process ends. If a method raises an exception,
it is reported for the topic in question, and other topics are not affected. Methods after "may also have" are optional.
"""

from collections.abc import Sequence
from typing import Protocol, Self


class NamingPolicy(Protocol):
    """`naming = "module:Class"`: maps a source topic to its name at the target, and back.

    It is not called for heartbeats topics, which always get the source's alias as a prefix. It may also have::

        def hops(self, topic: str) -> Sequence[str]
            The aliases of the clusters that a topic has passed according to its name, the latest first. Flows in a
            ring need this method, so that a topic that has already passed the target is not copied there again.
            Without it, no such clusters are known.

        def target_prefix(self, prefix: str) -> str | None
            The prefix that the target topics of exactly those source topics have whose names begin with `prefix`. If
            it returns None or does not exist, ACLs on prefixes are not synced.
    """

    def target_topic(self, source_topic: str, /) -> str:
        """Return the topic's name at the target. The name must be valid in Kafka and different for each source
        topic."""
        ...

    def source_topic(self, target_topic: str, /) -> str | None:
        """Return the source topic for which `target_topic` returns this name, or None if there is none."""
        ...


class SelectionPolicy(Protocol):
    """`select = "module:Class"`: decides which of the topics that `topics` and `exclude` accept are not copied."""

    def refusal(self, topic: str, /) -> str | None:
        """Return why this source topic is not copied, in a few words for people, or None if it is copied."""
        ...


class PropertyPolicy(Protocol):
    """`filter_configs = "module:Class"` in `[flows.sync]`: decides which topic configs are not synced to the target, in
    addition to those of `exclude_configs`. It may also have::

        def takes_default(self, name: str) -> bool
            For a config that is not set on the source topic: whether its effective value there is set on the target
            topic. Without this method, `use_defaults_from` decides.
    """

    def passes(self, name: str, /) -> bool:
        """Return whether the config of this name is synced from the source."""
        ...


class Record(Protocol):
    """A record, as filters and transforms receive it. It is a named tuple, so `record._replace(value=b"...")` returns a
    changed copy."""

    @property
    def offset(self) -> int:
        """The record's offset at the source. A transform cannot change it."""
        ...

    @property
    def time_ms(self) -> int:
        """The record's timestamp in milliseconds since 1970. It is the append time if the source topic uses
        LogAppendTime."""
        ...

    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...
    def _replace(self, **fields: object) -> Self: ...


class RecordFilter(Protocol):
    """`filter = "module:Class"` in `[flows.records]`: decides which records are copied.

    It must return the same result for the same record every time. A result that is committed in the ledger is final. If
    a process ends before a record is copied, the filter is called for this record again.
    """

    def keeps(self, record: Record, /) -> bool:
        """Return whether the record is copied."""
        ...


class RecordTransform(Protocol):
    """`transform = "module:Class"` in `[flows.records]`: changes records. It cannot skip records."""

    def changed(self, record: Record, /) -> Record:
        """Return the record that the target gets. Its `time_ms`, `key`, `value` and `headers` are used."""
        ...
