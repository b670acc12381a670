"""Records that no lane may copy, whatever else happens."""

from collections.abc import Iterable

from tests.sim.world import World


def wrongly_copied(world: World, numbers: Iterable[int]) -> str:
    """What is wrong with these records of the target, or empty: the flow began behind them, or their transaction was
    aborted. What the source has lost since is not judged."""
    source = world.source
    offsets = {number: source.offset_of[number] for number in numbers if number not in source.cut}
    if early := sorted(offset for offset in offsets.values() if offset < source.begin):
        return f"the flow begins at offset {source.begin}, and these arrived: {early}"
    unwanted = offsets.keys() & source.unwanted
    if unwanted and (aborted := sorted(source.aborted_offsets().intersection(offsets[each] for each in unwanted))):
        return f"records of aborted transactions arrived: source offsets {aborted}"
    return ""
