"""Formats as text the proof that a migration is complete: what was copied, what was lost, and what differs."""

from collections.abc import Iterator, Mapping

from mirrord.ledger.facts.core import Reason
from mirrord.operations.catch_up import FlowProof


def proof_lines(proof: FlowProof) -> Iterator[str]:
    """Yield the lines for one flow: its result, the offsets that were not copied and why, and one line for each
    difference."""
    caught_up = "caught up, with LOSSES" if proof.losses else "caught up"
    outcome = "NOT everything is explained" if proof.differences else caught_up
    losses = proof.losses
    regular: dict[Reason, int] = {reason: offsets for reason, offsets in proof.uncopied.items() if reason not in losses}
    yield (
        f"flow {proof.flow}: {outcome}: {_count(proof.partitions, 'partition')}, {proof.records:,} records copied, "
        f"{sum(regular.values()):,} source offsets explained that were not copied"
    )
    if losses:
        yield f"  source offsets LOST: {_by_reason(losses)}; `mirrord gaps` lists the ranges"
    if regular:
        yield f"  not copied, but no loss: {_by_reason(regular)}"
    yield from (f"  {line}" for line in proof.differences)
    uncounted = proof.partitions - proof.counted
    if uncounted:
        yield (
            f"  {_count(uncounted, 'partition')} not counted from the beginning, because the ledger no longer holds it"
        )
    if proof.newer:
        yield f"  {proof.newer:,} newer source offsets have not been copied: a client is still writing to the source"


def _by_reason(offsets: Mapping[Reason, int]) -> str:
    return ", ".join(f"{number:,} {reason}" for reason, number in offsets.items())


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
