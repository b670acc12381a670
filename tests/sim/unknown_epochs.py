"""Which records were appended in a leader epoch of the target that their holder did not know."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from mirrord.ledger.facts.core import Progress
from tests.sim import toy
from tests.sim.host import Request
from tests.sim.target import Broker, FakeTarget, Stored


class Appended(NamedTuple):
    """An acknowledged record. An acknowledgement does not say in which leader epoch the record was appended."""

    holder: str
    """The holder that got the acknowledgement."""
    ordinal: int
    known: int
    """The leader epoch in which, at least, the record was appended, as far as a holder can know."""
    actual: int


class UnknownEpochs:
    """Records by their numbers that were acknowledged in a leader epoch above the one that the holder knew."""

    def __init__(self) -> None:
        self._appended: dict[int, Appended] = {}
        self._covered: dict[int, set[str]] = {}
        """The holders whose resume positions cover these records in the leader epoch in which they were appended."""

    def took(self, request: Request, target: FakeTarget) -> None:
        """A batch was acknowledged, and the lane counts it."""
        name, known, leader = (
            request.host.name,
            request.host.lane.resumed_at.leader_epoch,
            target.brokers[target.leader],
        )
        for at, (_, number) in enumerate(toy.records(request.data)):
            actual = known if known in {-1, target.epoch} else _epoch_of(number, leader)
            self._forget(number)
            if actual > known:
                self._appended[number] = Appended(name, request.batch.first + at, known, actual)

    def resumed(self, holder: str, standing: Iterable[int]) -> None:
        """A holder has read the log, and its resume position covers these records in the present leader epoch. The next
        holder learns this only from a saved position."""
        if self._appended:
            for number in self._appended.keys() & set(standing):
                self._covered.setdefault(number, set()).add(holder)

    def saved(self, position: Progress) -> None:
        """A resume position was saved or handed over, which shows the epoch of the records below it to everyone."""
        for number, each in list(self._appended.items()):
            if each.ordinal < position.ordinal and each.actual <= position.leader_epoch:
                self._forget(number)

    def _forget(self, number: int) -> None:
        self._appended.pop(number, None)
        self._covered.pop(number, None)

    def look_up(self, holder: str, asked: Iterable[int], committed: Sequence[Stored]) -> None:
        """A holder has read the log, and asks whether it has newer records than these. An earlier batch that was
        appended since the holder last resumed, and is still in the log, shows the epoch to this holder. So does a
        resume position."""
        for number in asked:
            if holder in self._covered.get(number, ()):
                self._forget(number)
            mine = self._appended.get(number)
            if mine is not None and mine.holder == holder:
                shown = (each.leader_epoch for each in committed if _is_before(each, mine.ordinal))
                known = max((epoch for epoch in shown if epoch <= mine.actual), default=-1)
                self._appended[number] = mine._replace(known=max(known, mine.known))

    def hides(self, number: int, leader_epoch: int, lost_in: int) -> bool:
        """Return whether an older record of this leader epoch looks like a newer one. `lost_in` is the leader epoch
        that began without the record with this number."""
        mine = self._appended.get(number)
        return mine is not None and mine.known < leader_epoch <= mine.actual < lost_in


def _epoch_of(number: int, leader: Broker) -> int:
    return next((each.leader_epoch for each in reversed(leader.whole) if number in each.numbers), -1)


def _is_before(stored: Stored, ordinal: int) -> bool:
    return stored.producer >= 0 and stored.ordinal + stored.count <= ordinal
