"""Resolves operator commands that move a lane forward in the source: determines whether the seek is possible and which
fact results.

A lane can only seek forward. A seek backward would copy records to the target a second time.
"""

from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.seeks import LaneSought
from mirrord.ledger.seeks import Standing
from mirrord.ledger.standing_orders import describe_origin
from mirrord.model.errors import ConfigError
from mirrord.model.names import LaneId
from mirrord.supervision.rules.ruling import Ruling


def rule(name: str, lane: LaneId, at: Standing, to: int, log_start: int, origin: Origin) -> Ruling[LaneSought]:
    """Return the fact that makes the lane seek to the source offset `to`, or no fact if the command would change
    nothing. The result also contains a line for operators.

    `at` is the position of the lane together with its earlier seeks. `log_start` is the log start offset of the source
    partition. Raises ConfigError if the seek is impossible.
    """
    if at.lost_from >= 0:
        return _over_a_loss(name, lane, at, to, log_start, origin)
    for each in at.seeks:
        if each.end == to:
            is_done = each.done or at.position >= to
            what = "has already continued" if is_done else "already has a command to continue"
            return Ruling(None, f"{name} {what} at source offset {to}, {describe_origin(each.origin)}")
    if to == at.position:
        return Ruling(None, f"{name} is already at source offset {to}")
    if to < at.position:
        raise ConfigError(
            f"{name} is at source offset {at.position}: going back to {to} would copy records twice. To copy the "
            "whole topic again, delete its copy on the target; to read records again, move the readers' groups "
            "(`mirrord translate` shows where)"
        )
    further = next((each for each in at.seeks if each.end > to and not each.done), None)
    if further is not None:
        words = describe_origin(further.origin)
        raise ConfigError(f"{name} will continue at source offset {further.end}, {words}: that cannot be revoked")
    fact = LaneSought(lane, at.position, to, min(log_start, to), origin)
    return Ruling(fact, f"{name} continues at source offset {to} and skips [{at.position}, {to})")


def _over_a_loss(name: str, lane: LaneId, at: Standing, to: int, log_start: int, origin: Origin) -> Ruling[LaneSought]:
    """Return the fact for a lane that is halted because the source has lost copied records. The source may have other
    records at the lost offsets by now, and they have not been copied."""
    lost = at.lost_from
    again = next((each for each in at.seeks if each.end >= to and each.lost_from == lost and not each.done), None)
    if again is not None:
        words = describe_origin(again.origin)
        return Ruling(None, f"{name} already has a command to continue at source offset {again.end}, {words}")
    if to <= lost:
        raise ConfigError(
            f"{name} is halted because the source has lost the records from offset {lost} on: a seek must go further. "
            'To copy the records that the source has there now, restart the flow with `on_loss = "continue"`'
        )
    line = (
        f"{name} continues at source offset {to} and skips what the source has in [{lost}, {to}) now: it has lost the "
        f"records from offset {lost} on"
    )
    return Ruling(LaneSought(lane, lost, to, min(log_start, to), origin, lost), line)
