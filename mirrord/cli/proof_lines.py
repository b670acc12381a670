"""What a migration that has caught up has proved, as lines."""

from collections.abc import Iterator

from mirrord.shell.catch_up import FlowProof


def proof_lines(proof: FlowProof) -> Iterator[str]:
    """One line for the flow, and one for each difference."""
    outcome = "NOT everything is explained" if proof.differences else "caught up"
    yield (
        f"flow {proof.flow}: {outcome}: {_count(proof.partitions, 'partition')}, {proof.records:,} records copied, "
        f"{proof.explained:,} source offsets explained without a copy"
    )
    yield from (f"  {line}" for line in proof.differences)
    uncounted = proof.partitions - proof.counted
    if uncounted:
        yield f"  {_count(uncounted, 'partition')} not counted from the beginning: the ledger does not hold it any more"
    if proof.newer:
        yield f"  {proof.newer:,} newer source offsets are not copied: somebody still writes to the source"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
