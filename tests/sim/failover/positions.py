"""The final positions of consumer groups, compared with what the target holds."""

from typing import TYPE_CHECKING, NamedTuple

from mirrord.ledger.facts.recovery import Recovery
from mirrord.supervision.rules.final_positions import NOT_PLACED
from tests.sim.failover.groups import HERE
from tests.sim.failover.setting import Failover
from tests.sim.host import LANE
from tests.sim.violation import Violation

if TYPE_CHECKING:
    from tests.sim.world import World


class Copies(NamedTuple):
    """The records of the lane in the target, in the order of the log."""

    pairs: list[tuple[int, int]]
    """(source offset, target offset)"""

    def skipped(self, position: int, read: int) -> list[int]:
        """Return the source offsets of the records that a group skips if it has read the source up to `read`, and
        continues at this position of the target."""
        return [here for here, there in self.pairs if there < position and here >= read]

    def read_again(self, position: int, read: int) -> list[int]:
        """Return the source offsets of the records that such a group reads again."""
        return [here for here, there in self.pairs if there >= position and here < read]


def check_positions(world: "World", failover: Failover, recovery: Recovery) -> None:
    """Check that no group skips a copied record that it has not read, and that none reads a record again whose position
    is called exact. Nothing is known if the target holds records that no one knows about."""
    target, record = world.target, world.truth.lanes.get(LANE)
    is_unknown = bool(
        world.excused or world.late or failover.overdue or target.leapt or target.lost or world.source.cut
    )
    if is_unknown or failover.final is None or record is None:
        return
    own = [stored for stored in target.brokers[target.leader].history if stored.producer >= 0]
    there = [(stored, at, number) for stored in own for at, number in enumerate(stored.numbers) if number]
    # Nothing shows which records the ordinals of a hole belong to.
    void = [(hole.first, hole.last) for hole in record.holes]
    known = [each for each in there if not any(first <= each[0].ordinal + each[1] <= last for first, last in void)]
    pairs = [(world.source.offset_of[number], stored.base + at) for stored, at, number in known]
    copies = Copies(pairs)
    is_placed = all(record.target_runs.offset_of(each.ordinal) == each.base for each in own)
    # A gap in the log may hide a batch that the cleaner has removed.
    is_placed = is_placed and record.regiven < 0 and not record.rewinds and not target.cleaned
    is_in_order = not record.holes and not record.truncations
    for group, position in sorted(failover.groups.target.items()):
        _check_skipped(failover, copies, group, position)
        if is_in_order:
            _check_exact(failover, copies, group, position, is_placed=is_placed)
            _check_last(failover, copies, recovery, group, position)


def _check_skipped(failover: Failover, copies: Copies, group: str, there: int) -> None:
    """A group that has gone back has read up to its highest position."""
    reached = max(failover.groups.history[group])
    if skipped := copies.skipped(there, reached):
        raise Violation(f"group {group} has read up to {reached}, and skips source offsets {skipped}: {failover.final}")


def _check_exact(failover: Failover, copies: Copies, group: str, there: int, *, is_placed: bool) -> None:
    """Check that a group reads no record again if its position is called exact: none before the last commit that is
    known or, if its position matched when it was last recorded, none before one of its commits. If the ledger contains
    where all records are, the position must be exact."""
    final = failover.final
    assert final is not None
    known = [each for each in final.positions if each.group == group and (each.topic, each.partition) == HERE]
    lines = [line for line in final.plan.open if line.startswith(f"{group} in ")]
    if is_placed and any(line.endswith(NOT_PLACED) for line in lines):
        raise Violation(f"the position of group {group} is not called exact, and the ledger shows all records: {final}")
    if lines or not (known or group in final.in_step):
        return
    failover.seen.add("an exact position" if known else "a position that matched")
    commits = [each.offset for each in known] or failover.groups.history[group]
    if again := min((copies.read_again(there, offset) for offset in commits), key=len):
        raise Violation(
            f"group {group} is at {there} and reads {again} again, but its position is called exact: {final}"
        )


def _check_last(failover: Failover, copies: Copies, recovery: Recovery, group: str, there: int) -> None:
    """Check that a planned failover takes the last commits, unless the source does not answer."""
    final = failover.final
    assert final is not None
    outcome = next(each.outcome for each in recovery.steps if each.step == "groups")
    is_open = any(line.startswith(f"{group} in ") for line in final.plan.open)
    if recovery.mode != "planned" or "could not be verified" in outcome or is_open or group not in final.source:
        return
    failover.seen.add("a last position")
    if again := copies.read_again(there, final.source[group]):
        raise Violation(f"group {group} is at {there} and reads {again} again: {final}")
