"""Resolves operator commands about quarantined records: determines which quarantined range is meant and which fact
results."""

from collections.abc import Mapping
from typing import Literal

from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.quarantine import QuarantineOrder, QuarantineReplayed, QuarantineSkipped
from mirrord.ledger.quarantine import Quarantine, waiting
from mirrord.ledger.standing_orders import Order, describe_origin
from mirrord.model.errors import ConfigError
from mirrord.model.names import LaneId
from mirrord.supervision.rules.ruling import Ruling


def rule(
    verb: Literal["skip", "replay"],
    order: Order,
    name: str,
    lanes: Mapping[LaneId, Quarantine],
    origin: Origin,
    ends: Mapping[LaneId, int],
    retrying: str | None = None,
) -> Ruling[QuarantineOrder]:
    """Return the fact that carries out an operator command about a quarantined record, or the reason why the command
    changes nothing. `lanes` holds the quarantined ranges of all lanes with this topic name and partition, including
    lanes of deleted topics with this name.

    `ends` holds the known log ends of the source partitions. `retrying` is the status text of the lane if it is
    retrying on its own, or None if it is not. Raises ConfigError if the command is impossible.
    """
    offset = order.offset
    waits = [(lane, entry) for lane, quarantine in lanes.items() if (entry := waiting(quarantine)) is not None]
    for lane, entry in waits:
        if entry.start <= offset < entry.end:
            if verb == "replay":
                fact = QuarantineReplayed(lane, entry.start, entry.end, origin)
                return Ruling(fact, f"{name} tries source offsets [{entry.start}, {entry.end}) again")
            end = entry.end if order.until < 0 else order.until
            if not entry.end <= end <= max(entry.end, ends.get(lane, -1)):
                raise ConfigError(f"--until: found {end}; allowed: {_allowed(entry.end, ends.get(lane, -1), name)}")
            if not -1 <= order.letters <= end - entry.start:
                raise ConfigError(f"letters: found {order.letters}; allowed: -1 to {end - entry.start}")
            fact = QuarantineSkipped(lane, entry.start, end, origin, order.letters, order.letters_at)
            return Ruling(fact, f"{name} continues without source offsets [{entry.start}, {end})")
    for quarantine in lanes.values():
        for entry in quarantine:
            if entry.skipped is not None and entry.start <= offset < entry.end:
                left_out = f"source offsets [{entry.start}, {entry.end}) were skipped {describe_origin(entry.skipped)}"
                if verb == "skip":
                    return Ruling(None, f"{name}: {left_out}")
                went_on = f"{name}: {left_out}, and it continued after them: they cannot be tried again"
                raise ConfigError(f"{went_on}; `mirrord quarantine replay` brings back what was parked")
    where = ", ".join(f"[{entry.start}, {entry.end})" for _, entry in waits)
    reason = f"it is waiting at source offsets {where}" if waits else "it is not waiting for a decision"
    if not waits and retrying is not None:
        why = f" ({retrying})" if retrying else ""
        reason = f"{reason}, but is still being retried{why}; try again in a few seconds"
    raise ConfigError(f"{name} is not waiting at source offset {offset}: {reason}")


def _allowed(entry_end: int, source_end: int, name: str) -> str:
    """Describe the offsets that `--until` allows: from the end of the quarantined range to the log end of the source
    partition. Records that have not been written yet cannot be skipped."""
    if source_end > entry_end:
        return f"{entry_end}, where the entry of {name} ends, to {source_end}, where the source ends"
    why = "the source also ends there" if source_end >= 0 else "where the source ends is currently not known"
    return f"{entry_end}, where the entry of {name} ends; {why}"
