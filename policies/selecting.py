"""Decides which source topics a flow copies, and gives the reason for each topic that it does not copy.

A topic is selected if its whole name matches one of the includes and none of the excludes, and the flow's third-party
policy, if there is one, does not refuse it. Three kinds are never selected, whatever the lists say: Kafka's own topics,
the topics in which mirrord and MirrorMaker 2 store their state, and topics that originally came from the target. User
topics whose names merely end in `.internal` are selected (KIP-1074). A flow can name topics that it copies regardless
of the lists, such as MirrorMaker 2's heartbeats.
"""

import functools
import re
from collections.abc import Callable, Iterable
from typing import Literal, Protocol

from mirrord.model.errors import PolicyFault
from mirrord.model.names import Alias
from policies.naming import Naming

Refusal = Literal["internal", "excluded", "not-included", "cycle", "left-out", "fault"]
"""Why a topic is not copied. left-out: a third-party policy refuses it; fault: such a policy gives no answer."""


class Leaving(Protocol):
    """The policy that decides which topics a flow skips among those that its lists accept."""

    def refusal(self, topic: str) -> str | None:
        """Return why this topic is skipped, in one line, or None if it is not. Raises PolicyFault."""
        ...


@functools.cache
def _internal(separator: str) -> re.Pattern[str]:
    # "-" is MirrorMaker 2's other separator of internal names; any other one is configured (KIP-949).
    between = rf"([.-]|{re.escape(separator)})"
    return re.compile(
        r"__.*"  # Kafka: __consumer_offsets, __transaction_state, __share_group_state, ...
        r"|mirrord\.[^.]+\.(ledger|state|probe|dead)"
        # MirrorMaker 2: offset syncs, Connect's own topics, checkpoints.
        rf"|mm2-(offset-syncs|configs|offsets|status){between}.+{between}internal"
        rf"|.+{between}checkpoints{between}internal"
    )


def is_internal(topic: str, separator: str = ".") -> bool:
    """Return whether the topic belongs to Kafka, MirrorMaker 2 or mirrord and not to a user.

    `separator` is the one in the names of MirrorMaker 2's internal topics.
    """
    return _internal(separator).fullmatch(topic) is not None


class Selection:
    """The topics of one flow."""

    def __init__(
        self,
        include: Iterable[str],
        exclude: Iterable[str],
        target: Alias,
        naming: Naming,
        internal_separator: str = ".",
        leaving: Leaving | None = None,
        always: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`always` returns whether a topic is copied regardless of the lists and of third-party policies."""
        self._include = [re.compile(pattern) for pattern in include]
        self._exclude = [re.compile(pattern) for pattern in exclude]
        self._target = target
        self._naming = naming
        self._internal_separator = internal_separator
        self._leaving = leaving
        self._always = always

    def refusal(self, topic: str) -> Refusal | None:
        """Return why this source topic is not copied, or None if it is copied."""
        if is_internal(topic, self._internal_separator):
            return "internal"
        always = self._always(topic)
        if not always and not any(pattern.fullmatch(topic) for pattern in self._include):
            return "not-included"
        if not always and any(pattern.fullmatch(topic) for pattern in self._exclude):
            return "excluded"
        try:
            # Check every hop, not only the last: eu -> us -> asia -> eu is a ring too, as in
            # MirrorSourceConnector.isCycle.
            if self._target in self._naming.hops(topic):
                return "cycle"
            if always or self._leaving is None:
                return None
            return None if self._leaving.refusal(topic) is None else "left-out"
        except PolicyFault:
            return "fault"

    def reason(self, topic: str) -> str:
        """Return what a third-party policy says about a topic that it refuses or has no answer for."""
        try:
            self._naming.hops(topic)
            return (self._leaving.refusal(topic) if self._leaving is not None else None) or ""
        except PolicyFault as fault:
            return str(fault)

    def excluded_by(self, topic: str) -> str | None:
        """Return the first exclude pattern that matches this name."""
        return next((pattern.pattern for pattern in self._exclude if pattern.fullmatch(topic)), None)

    def selects(self, topic: str) -> bool:
        """Return whether this source topic is copied. Raises PolicyFault if a policy has no answer."""
        refusal = self.refusal(topic)
        if refusal == "fault":
            raise PolicyFault(self.reason(topic))
        return refusal is None

    def copy_of(self, topic: str) -> str | None:
        """Return the target topic of a copied source topic. Return None for any other topic, or if a policy has no
        answer."""
        try:
            return self._naming.target_topic(topic) if self.selects(topic) else None
        except PolicyFault:
            return None
