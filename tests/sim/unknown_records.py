"""Which copied records a holder of the lane could not know about, and what the ledger records instead."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from mirrord.ledger.facts.core import SourceRun, VerdictGiven
from mirrord.ledger.state import LaneState
from mirrord.replication.lane.phases import Phase
from tests.sim.checks import once_a_check
from tests.sim.host import LANE
from tests.sim.left_out import recorded_as
from tests.sim.stored import BatchId
from tests.sim.world import World


def is_known(world: World, number: int) -> bool:
    """The holder of the lane can know that this record was in the target. What an election removes without a trace, or
    what superseded it, before any resume position mentions it, may as well never have been there."""
    known = world.known
    is_there = number in known.taken and number not in known.dropped and number not in known.after_drop
    return is_there and not was_superseded(world, number)


def was_superseded(world: World, number: int) -> bool:
    """Return whether a copied record was lost and then skipped because the target had newer ones, which an election
    removed later. It is copied again without another lookup (decision 95)."""
    key, taken = world.target.key(number), world.known.taken[number]
    lost = any(-each > taken and world.target.key(each) == key for each in world.target.lost)
    return lost and world.source.offset_of[number] in _left_out_of_plans(world)


@once_a_check
def _left_out_of_plans(world: World) -> AbstractSet[int]:
    """Source offsets that a plan has left out, because the target had newer records."""
    facts = (fact for entry in world.ledger for fact in entry.facts if isinstance(fact, VerdictGiven))
    verdicts = (each for fact in facts for each in fact.verdicts if each.reason == "compacted")
    return {offset for each in verdicts for offset in range(each.start, each.end)}


def was_hidden(world: World, number: int, batch: tuple[int, int]) -> bool:
    """Whether the holder could not find a copied record when it appended a batch: the log of the leader that was asked
    had it cleaned, and an election removed what had superseded it. The holder copies it again, because the key would
    have no value otherwise. Until the newer records follow, another replica may show the older value after it, and that
    replica may still have the first copy (decision 95)."""
    if number in world.target.hid.get(batch, ()):
        return True
    if number not in world.target.unseen.get(batch, ()):
        return False
    return number in world.known.unknowing or not is_known(world, number)


def is_hidden_copy(world: World, number: int) -> bool:
    """Whether the log has further copies of a record, all of which were appended to logs that had hidden it. Copies
    that retention has deleted count as well."""
    if not world.shape.cleans:
        return False
    others = _batches_with_records(world).get(number, [])[1:]
    return bool(others) and all(was_hidden(world, number, batch) for batch in others)


@once_a_check
def _batches_with_records(world: World) -> Mapping[int, list[BatchId]]:
    """The batches with each record, in the order of the log."""
    found: dict[int, list[BatchId]] = {}
    for stored in world.target.brokers[world.target.leader].history:
        for number in dict.fromkeys(stored.numbers):
            found.setdefault(number, []).append(stored.id)
    return found


def left_no_trace(world: World, number: int) -> bool:
    """Whether a holder could not find out that a record had been copied: it could not know the record, the target's
    cleaner had removed it, and the source had deleted it, so that its key could not be looked up. The ledger says that
    the record was deleted before it was copied, and gives its ordinal to a later record. If a replica leads that still
    has the record, the target holds it nevertheless. The same is true of a later record that the source has lost in an
    election, because a lookup ends at the first record that nothing shows."""
    source = world.source
    is_lost = number in source.cut and bool(source.expired)
    if not is_lost and number not in source.expired:
        return False
    if number not in world.target.cleaned or all(world.known.knows(host.name, number) for host in world.hosts):
        return False
    return is_lost or source.offset_of[number] in recorded_as(world, "expired")


def is_of_unread_log(world: World) -> bool:
    """Whether no holder has read the log of this leader yet. An unclean election may have brought back batches whose
    ordinals belong to other records since the source lost theirs. The lane finds that when it resumes."""
    if not (world.shape.unclean and world.shape.truncation):
        return False
    lanes = (host.lane for host in world.hosts.living)
    return not any(lane.phase is Phase.COPYING and lane.log.end_epoch == world.target.epoch for lane in lanes)


def is_left_open(world: World, ordinal: int, number: int) -> bool:
    """The ledger correctly says that the record of this ordinal is unknown: the source has lost it."""
    holes = world.truth.lanes[LANE].holes
    is_void = bool(holes) and any(hole.first <= ordinal <= hole.last for hole in holes)
    return is_void and world.source.at(world.source.offset_of[number]) != number


def are_apart(record: LaneState) -> bool:
    """Return whether ordinals that only a lookup took for appended have source offsets that do not directly follow
    those of the compared records. A rebuilt map would assign others to them (docs/explanation/gaps.md, "Open")."""
    last = record.last_check.last if record.last_check is not None else -1
    behind = [each.last for each in record.displaced if each.by_look_up and each.first > last]
    pieces = record.source_runs.between(max(last, 0), max(behind)) if behind else ()
    return len({offset - ordinal for ordinal, offset, _ in pieces}) > 1


def superseded_without_trace(world: World, number: int | None) -> bool:
    """Whether the cleaner removed a copied record because of a newer one with its key, and both logs have lost the
    newer one without a trace: its holder ended before it had saved a position after that record, and before it had
    noticed that the source had lost it. The next holder cannot know that the key has lost its value."""
    key = world.target.key
    if number is None or number not in world.target.cleaned:
        return False
    newer = (each for each in world.source.cut if each > number and key(each) == key(number))
    return any(each in world.known.takers and _left_no_mark(world, each) for each in newer)


def _left_no_mark(world: World, number: int) -> bool:
    names = [host.name for host in world.hosts]
    taker = names.index(world.known.takers[number][0])
    if taker + 1 == len(names) or number in world.known.below_position.get(names[taker + 1], ()):
        return False
    grant, offset = world.hosts[taker].lane.grant, world.source.offset_of[number]
    facts = (fact for entry in world.ledger for fact in entry.facts if isinstance(fact, SourceRun))
    given = (each for fact in facts if fact.grant == grant for each in fact.verdicts if each.reason == "truncated")
    return not any(each.start <= offset < each.end for each in given)
