"""The interfaces that a class must implement if a configuration names it as a third-party policy.

Such a class need not import anything from mirrord; these protocols are for its type checker. mirrord creates one object
of the class for each flow, as `Class(source, target, **settings)`. The arguments are the aliases of the two clusters
and the settings table next to the name in the configuration. The first two are positional, so their parameters may have
any names. The settings are passed by the names in the table.

Answers may depend only on these arguments and on the question, and must come at once, without blocking. mirrord asks
once for each name and keeps the answer as long as the process lives. An exception that a policy raises is reported for
the topic in question, and stops no other topic. Methods listed under "may" are optional.
"""

from collections.abc import Sequence
from typing import Protocol, Self


class NamingPolicy(Protocol):
    """`naming = "module:Class"`: maps a source topic to its name at the target, and back.

    It is not asked about heartbeats topics, which always get the source's alias as a prefix. It may also have::

        def hops(self, topic: str) -> Sequence[str]
            The aliases of the clusters that a topic has passed according to its name, the latest first. Without it,
            none. Flows in a ring need it: a topic that has already passed the target is not copied there again.

        def target_prefix(self, prefix: str) -> str | None
            The prefix that the copies of exactly those topics have whose names begin with `prefix` at the source. If
            it returns None or does not exist, ACLs on prefixes are not synced.
    """

    def target_topic(self, source_topic: str, /) -> str:
        """Return the name at the target. It must be valid in Kafka, and no other source topic may have it."""
        ...

    def source_topic(self, target_topic: str, /) -> str | None:
        """Invert `target_topic` exactly. Return None for a name that `target_topic` does not return."""
        ...


class SelectionPolicy(Protocol):
    """`select = "module:Class"`: decides which of the topics that the lists accept are skipped."""

    def refusal(self, topic: str, /) -> str | None:
        """Return why this source topic is not copied, in a few words for people, or None if it is copied."""
        ...


class PropertyPolicy(Protocol):
    """`filter_configs = "module:Class"` in `[flows.sync]`: decides which topic configs are not synced to the target, in
    addition to those of `exclude_configs`. It may also have::

        def takes_default(self, name: str) -> bool
            For a config that is not set on the source topic: whether its effective value at the source is set at the
            target. Without it, `use_defaults_from` decides.
    """

    def passes(self, name: str, /) -> bool:
        """Return whether the config is synced from the source."""
        ...


class Record(Protocol):
    """A record as record policies receive it: a named tuple, so `record._replace(value=b"...")` returns
    a changed copy."""

    @property
    def offset(self) -> int:
        """The offset at the source. A transform cannot change it."""
        ...

    @property
    def time_ms(self) -> int:
        """Milliseconds since 1970. This is the append time if the source topic uses LogAppendTime."""
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

    The same record must get the same answer every time. An answer that is committed in the ledger is final, but a
    record that is not copied yet when a process ends is asked about again.
    """

    def keeps(self, record: Record, /) -> bool:
        """Return whether the record is copied."""
        ...


class RecordTransform(Protocol):
    """`transform = "module:Class"` in `[flows.records]`: changes records. It cannot skip one."""

    def changed(self, record: Record, /) -> Record:
        """Return the record that the target stores. Its time, key, value and headers are used."""
        ...
