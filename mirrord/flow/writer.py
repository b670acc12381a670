"""Who else writes into a partition that a lane reads."""

import msgspec

from mirrord.model.runs import Runs


class Writer(msgspec.Struct, frozen=True):
    """A lane of any flow that writes into this lane's source partition, as the ledger of that flow tells."""

    flow: str
    producer_id: int
    producer_epoch: int
    runs: Runs
    """Its target runs: where its ordinals stand in our source. Never changed."""
    ordinal: int = 0
    """With the next two its last mark: what stands below `offset` was known when the runs were read."""
    offset: int = 0
    leader_epoch: int = -1
