"""Whether a lane compares all of the records that it means to compare."""

from typing import TYPE_CHECKING

from mirrord.replication.lane.signals import AskCheck

if TYPE_CHECKING:
    from tests.sim.host import Host


def check_range(host: "Host", question: AskCheck) -> None:
    """Check that a comparison reads all of the records that it is about. The ledger would say that they were compared,
    or that nothing was left to compare. Raises AssertionError.

    If late bytes have been appended a second time, the lane may compare either copy. A lane that does not know of an
    election yet, or whose facts about the target log have not taken effect, may not know where its records are.
    """
    target, lane = host.world.target, host.lane
    if lane.notes or lane.log.end_epoch != target.epoch:
        return
    log = [each for each in target.read(target.start, question.end) if each.producer == lane.producer_id]
    meant = [(each.ordinal, each) for each in log]
    meant = [(at, each) for at, each in meant if at <= question.last and question.first < at + each.count]
    read = {ordinal for at, each in meant if each.end > question.start for ordinal in range(at, at + each.count)}
    for at, each in meant:
        wanted = range(max(at, question.first), min(at + each.count, question.last + 1))
        if each.end <= question.start and not read.issuperset(wanted):
            raise AssertionError(
                f"ordinals {question.first} to {question.last} are compared from {question.start} on, but "
                f"ordinal {at} is at {each.base}"
            )
