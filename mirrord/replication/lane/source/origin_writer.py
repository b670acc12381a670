"""Other lanes that write into a partition that a lane reads."""

import msgspec

from mirrord.model.runs import Runs


class Writer(msgspec.Struct, frozen=True):
    """A lane of any flow that writes into this lane's source partition, according to the ledger of that flow."""

    flow: str
    producer_id: int
    producer_epoch: int
    runs: Runs
    """The writer's target runs: the offsets of its ordinals in our source partition. They are never changed."""
    ordinal: int = 0
    """This and the next two fields are the writer's last resume position: everything below `offset` was known when the
    runs were read."""
    offset: int = 0
    leader_epoch: int = -1
