"""What a class has to offer that stands in a configuration as a policy of a third party.

Such a class need not import anything of mirrord; these protocols are for its type checker. mirrord makes one object of
it for each flow, as `Class(source, target, **settings)`: the aliases of the two clusters and the settings table that
stands beside the name. The first two may be taken by any names, the settings by the names that the table has.

Answers may depend on these and on the question alone, at once and without waiting: mirrord asks once for each name and
keeps the answer as long as the process lives. Whatever a policy raises is told for the topic it was asked about, and
stops no other one. What stands under "may" can be left out.
"""

from collections.abc import Sequence
from typing import Protocol, Self


class NamingPolicy(Protocol):
    """`naming = "module:Class"`: how a source topic is named at the target, and back.

    It is not asked about heartbeats topics, which always get the source's alias in front of them. It may also have::

        def hops(self, topic: str) -> Sequence[str]
            The aliases that the name of a topic tells it has passed, the latest first; without it, none. Flows in a
            ring need it: a topic that has passed the target already is not copied there again.

        def target_prefix(self, prefix: str) -> str | None
            How the names of all copies begin whose names at the source begin so, and no others; None, or without it:
            rights on prefixes are not carried over.
    """

    def target_topic(self, source_topic: str, /) -> str:
        """The name at the target: one that Kafka takes, and no other source topic's."""
        ...

    def source_topic(self, target_topic: str, /) -> str | None:
        """Undoes `target_topic` exactly; None for a name that it does not give."""
        ...


class SelectionPolicy(Protocol):
    """`select = "module:Class"`: which of the topics that the lists take are left out."""

    def refusal(self, topic: str, /) -> str | None:
        """Why this source topic is not copied, in a few words for people; None when it is."""
        ...


class PropertyPolicy(Protocol):
    """`filter_configs = "module:Class"` in `[flows.sync]`: which topic settings are left alone at the target, beside
    those of `exclude_configs`. It may also have::

        def takes_default(self, name: str) -> bool
            Of a setting that the source topic has no value of its own for: whether the value that counts at the source
            is set at the target; without it, `use_defaults_from` decides.
    """

    def passes(self, name: str, /) -> bool:
        """Whether the setting is kept like the source's."""
        ...


class Record(Protocol):
    """A record as record policies get it: a named tuple, so `record._replace(value=b"...")` makes another one."""

    @property
    def offset(self) -> int:
        """At the source; a transform cannot change it."""
        ...

    @property
    def time_ms(self) -> int:
        """Milliseconds since 1970; the time of its append where the source topic has those."""
        ...

    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...
    def _replace(self, **fields: object) -> Self: ...


class RecordFilter(Protocol):
    """`filter = "module:Class"` in `[flows.records]`: which records are copied.

    The same record must get the same answer each time: what is bound in the ledger stands, but what is not copied yet
    when a process ends is asked about once more.
    """

    def keeps(self, record: Record, /) -> bool:
        """Whether the record is copied."""
        ...


class RecordTransform(Protocol):
    """`transform = "module:Class"` in `[flows.records]`: what becomes of a record. It cannot leave one out."""

    def changed(self, record: Record, /) -> Record:
        """The record as the target is to hold it: time, key, value and headers count."""
        ...
