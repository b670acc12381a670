"""Records that no lane may copy, whatever else happens."""

from collections.abc import Sequence

from tests.sim.world import World


def wrongly_copied(world: World, numbers: Sequence[int]) -> str:
    """What is wrong with these records of the target, or empty: the flow began behind them, or their transaction was
    aborted. What the source has lost since is not judged."""
    source, offset_of = world.source, world.source.offset_of
    kept = [number for number in numbers if number not in source.cut] if source.cut else numbers
    if source.begin and (early := sorted(offset_of[number] for number in kept if offset_of[number] < source.begin)):
        return f"the flow begins at offset {source.begin}, and these arrived: {early}"
    unwanted = source.unwanted.intersection(kept)
    if unwanted and (aborted := sorted(source.aborted_offsets().intersection(offset_of[each] for each in unwanted))):
        return f"records of aborted transactions arrived: source offsets {aborted}"
    return ""
