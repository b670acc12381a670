"""The interfaces that a class must implement so that a configuration can name it as a policy.

Such a class need not import anything from mirrord. The protocols in this module can be used with a type checker.

mirrord creates one instance of the class for each flow, as `Class(source, target, **settings)`. `source` and `target`
are the aliases of the two clusters. They are passed by position, so the parameters may have any names. `settings`
contains the entries of the settings table that belongs to the class's key in the configuration. These entries are
passed as keyword arguments.

A method's result may depend only on the method's argument and on the arguments with which the instance was created. The
method must not block. mirrord may use a result until the process exits, without calling the method again for the same
argument. If a method raises an exception, mirrord reports the exception for the topic or partition in question. Other
topics and partitions are not affected. The docstrings of some interfaces list further methods after the words "may also
have". A class need not implement these methods.
"""

from collections.abc import Sequence
from typing import Protocol, Self


class NamingPolicy(Protocol):
    """The interface for `naming = "module:Class"`. The class maps a source topic to its name on the target, and back.

    mirrord does not call the class for heartbeats topics, which always get the source's alias as a prefix. The class
    may also have::

        def hops(self, topic: str) -> Sequence[str]
            The aliases of the clusters that a topic has passed through according to its name, most recent first. Flows
            in a ring need this method: it prevents mirrord from copying a topic to a target that the topic has already
            passed through. Without this method, mirrord assumes that a topic has not passed through any cluster.

        def target_prefix(self, prefix: str) -> str | None
            The common prefix of the target topics of all source topics that begin with `prefix`. No other target topic
            may begin with this prefix. If the result is None, or if the method does not exist, ACLs on prefixes are not
            synced.
    """

    def target_topic(self, source_topic: str, /) -> str:
        """Return the topic's name on the target. The name must be a valid Kafka topic name. Different source topics
        must get different names.
        """
        ...

    def source_topic(self, target_topic: str, /) -> str | None:
        """Return the source topic whose name on the target is `target_topic`, or None if no source topic gets this
        name."""
        ...


class SelectionPolicy(Protocol):
    """The interface for `select = "module:Class"`. The class decides which topics are copied, of those that match
    `topics` and do not match `exclude`."""

    def refusal(self, topic: str, /) -> str | None:
        """Return None if this source topic is copied. Otherwise, return the reason in a few words for operators."""
        ...


class PropertyPolicy(Protocol):
    """The interface for `filter_configs = "module:Class"` in `[flows.sync]`. The class decides which topic configs are
    not synced to the target, in addition to the configs that match `exclude_configs`. The class may also have::

        def takes_default(self, name: str) -> bool
            Return whether mirrord sets this config on the target topic even if it is not set on the source topic. The
            value is then the source topic's effective value. Without this method, `use_defaults_from` decides.
    """

    def passes(self, name: str, /) -> bool:
        """Return whether the config with this name is synced from the source."""
        ...


class Record(Protocol):
    """A record in the form in which filters and transforms receive it. It is a named tuple, so
    `record._replace(value=b"...")` returns a changed copy."""

    @property
    def offset(self) -> int:
        """The record's offset on the source. A transform cannot change it."""
        ...

    @property
    def time_ms(self) -> int:
        """The record's timestamp in milliseconds since 1970. If the source topic uses LogAppendTime, this is the append
        time."""
        ...

    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...
    def _replace(self, **fields: object) -> Self: ...


class RecordFilter(Protocol):
    """The interface for `filter = "module:Class"` in `[flows.records]`. The class decides which records are copied.

    The filter must always return the same result for the same record. mirrord may call it again for the same record,
    for example if a process exits before the record is copied. Once a result has been stored in the ledger, mirrord
    uses the stored result.
    """

    def keeps(self, record: Record, /) -> bool:
        """Return True to copy the record, or False to leave it out of the target topic."""
        ...


class RecordTransform(Protocol):
    """The interface for `transform = "module:Class"` in `[flows.records]`. The class changes records, but cannot skip
    them."""

    def changed(self, record: Record, /) -> Record:
        """Return the record for the target. Only `time_ms`, `key`, `value` and `headers` of the result are used."""
        ...
