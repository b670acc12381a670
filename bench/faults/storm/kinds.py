"""The kinds of faults: what each of them is, what it needs, and whether that is available."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

Need = Literal["namespaces", "faketime", "older Kafka", "Ray"]
"""`namespaces`: the run has its own network and mount namespace (root, or user namespaces). `faketime`: libfaketime can
be loaded into brokers and mirrord. `older Kafka`: the jars of `clusters.OLDER` are available. `Ray`: the engine."""

Flavor = Literal["plain", "disks", "clocks", "upgrade"]
"""What a chapter has in addition to the faults that every chapter has."""

FLAVORS: tuple[Flavor, ...] = ("plain", "disks", "clocks", "upgrade")
NEED_OF_FLAVOR: Mapping[Flavor, Need] = {"disks": "namespaces", "clocks": "faketime", "upgrade": "older Kafka"}
TWO_AT_ONCE = "two faults at once"
SEVERAL_AT_ONCE = "several faults at any time"


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of fault."""

    name: str
    what: str
    """What is done, for the table in docs/measurements.md."""
    needs: frozenset[Need] = frozenset()
    flavor: Flavor | None = None
    """The only flavor of chapters that has this kind. None: all of them."""
    hold_s: tuple[float, float] = (0.0, 0.0)
    """The shortest and the longest time from the strike until it is healed."""
    settle_s: float = 0.0
    """Data that is on its way when the fault begins may still arrive for this time. Later data shows a recovery."""

    @property
    def lasts(self) -> bool:
        """Whether the fault lasts until it is healed. Otherwise it is over at once, as a kill is."""
        return self.settle_s > 0


def _on_both(name: str, what: str, **more: object) -> list[Kind]:
    """Return the same kind for a source and a target; `{side}` in the text is replaced."""
    return [
        Kind(name=f"{side}-{name}", what=what.format(side=side), **more)  # pyright: ignore[reportArgumentType]
        for side in ("source", "target")
    ]


_ROOT: frozenset[Need] = frozenset({"namespaces"})
_RAY: frozenset[Need] = frozenset({"Ray"})
_PAUSE_S = (2.0, 15.0)
_CUT_S = (2.0, 20.0)
_RAY_ENDS_S = (16.0, 16.0)
"""Ray ends the daemon about 10 s after its head has gone. Then the daemon is started again."""

KINDS: Sequence[Kind] = (
    *_on_both("kill", "`kill -9` of a {side} broker", hold_s=(0.0, 4.0)),
    *_on_both("term", "SIGTERM to a {side} broker", hold_s=(0.0, 4.0)),
    *_on_both("stop", "SIGSTOP of a {side} broker", hold_s=_PAUSE_S, settle_s=1.0),
    *_on_both("kill-all", "`kill -9` of all {side} brokers", hold_s=(0.0, 3.0)),
    *_on_both("controller-kill", "`kill -9` of the {side} controller", hold_s=(0.0, 6.0)),
    *_on_both("controller-stop", "SIGSTOP of the {side} controller", hold_s=_PAUSE_S, settle_s=1.0),
    *_on_both("election", "other leaders for a third of the {side} partitions"),
    *_on_both("reassignment", "replicas of {side} partitions leave a broker and return", hold_s=(1.0, 6.0)),
    Kind(name="daemon-kill", what="`kill -9` of the daemon, started again", hold_s=(0.0, 2.0)),
    Kind(name="daemon-term", what="SIGTERM to the daemon, started again", hold_s=(0.0, 2.0)),
    Kind(name="daemon-stop", what="SIGSTOP of the daemon", hold_s=(1.0, 12.0), settle_s=1.0),
    Kind(name="all-kill", what="`kill -9` of all processes of mirrord", hold_s=(0.0, 2.0)),
    Kind(name="beside-frozen", what="a second daemon takes over from a frozen one", hold_s=(20.0, 40.0), settle_s=1.0),
    Kind(name="replicator-kill", what="`kill -9` of a replicator", needs=_RAY),
    Kind(name="replicator-stop", what="SIGSTOP of a replicator", needs=_RAY, hold_s=(3.0, 20.0), settle_s=1.0),
    Kind(name="supervisor-kill", what="`kill -9` of the supervisor", needs=_RAY),
    Kind(name="actor-kill", what="`kill -9` of another actor", needs=_RAY),
    Kind(name="head-kill", what="`kill -9` of the Ray head (GCS)", needs=_RAY, hold_s=_RAY_ENDS_S),
    Kind(name="raylet-kill", what="`kill -9` of the raylet", needs=_RAY, hold_s=_RAY_ENDS_S),
    Kind(name="retention", what="the source deletes records that a frozen daemon has not copied", hold_s=(2.0, 6.0)),
    Kind(name="growth", what="a source topic gets another partition"),
    Kind(name="deletion", what="a source topic is deleted while it is written to"),
    *_on_both("cut-to", "requests to a {side} broker are lost", needs=_ROOT, hold_s=_CUT_S, settle_s=1.0),
    *_on_both("cut-from", "responses of a {side} broker are lost", needs=_ROOT, hold_s=_CUT_S, settle_s=1.0),
    *_on_both("cut", "mirrord is cut off from all {side} brokers", needs=_ROOT, hold_s=_CUT_S, settle_s=1.0),
    *_on_both("cut-replicas", "a {side} broker gets no replica fetches", needs=_ROOT, hold_s=_CUT_S, settle_s=1.0),
    *_on_both("cut-controller", "{side} brokers do not reach the controller", needs=_ROOT, hold_s=_CUT_S, settle_s=1.0),
    *_on_both(
        "disk", "the disk of a {side} broker is full", needs=_ROOT, flavor="disks", hold_s=(4.0, 12.0), settle_s=1.0
    ),
    Kind(name="ledger-disk", what="the disk of the broker with the ledger is full", needs=_ROOT, flavor="disks",
         hold_s=(4.0, 12.0), settle_s=1.0),
    Kind(name="spill-disk", what="the disk with the spill file is full", needs=_ROOT, flavor="disks",
         hold_s=(4.0, 12.0), settle_s=1.0),
    *_on_both(
        "clock", "the clock of a {side} broker is wrong by an hour", needs=frozenset[Need]({"faketime"}),
        flavor="clocks", hold_s=(4.0, 15.0), settle_s=1.5,
    ),
    Kind(name="mirrord-clock", what="the clock of mirrord is wrong by an hour", needs=frozenset({"faketime"}),
         flavor="clocks", hold_s=(4.0, 15.0), settle_s=1.5),
    *_on_both(
        "upgrade", "a {side} broker or controller restarts with a newer Kafka",
        needs=frozenset[Need]({"older Kafka"}), flavor="upgrade",
    ),
)  # fmt: skip

Missing = Mapping[Need, str]
"""Needs that this machine or this run does not meet, and why."""


def unavailable(kinds: Iterable[Kind], missing: Missing) -> dict[str, str]:
    """Return the kinds that cannot be played, and why."""
    return {
        kind.name: "; ".join(missing[need] for need in sorted(kind.needs & missing.keys()))
        for kind in kinds
        if kind.needs & missing.keys()
    }


def flavors(missing: Missing) -> list[Flavor]:
    """Return the flavors that chapters can have."""
    return [each for each in FLAVORS if NEED_OF_FLAVOR.get(each) not in missing]


def playable(kinds: Iterable[Kind], missing: Missing, flavor: Flavor) -> list[Kind]:
    """Return the kinds that a chapter of this flavor can play."""
    return [kind for kind in kinds if not kind.needs & missing.keys() and kind.flavor in {None, flavor}]


class Order:
    """An endless order of kinds in which each occurs once per round. Kinds of the chapter's flavor occur twice."""

    def __init__(self, kinds: Sequence[Kind], chance: Random) -> None:
        self._kinds = [*kinds, *(kind for kind in kinds if kind.flavor is not None)]
        self._chance = chance
        self._left: list[Kind] = []

    def __next__(self) -> Kind:
        if not self._left:
            self._left = list(self._kinds)
            self._chance.shuffle(self._left)
        return self._left.pop()
