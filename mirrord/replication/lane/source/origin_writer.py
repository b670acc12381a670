"""Describes the lanes that write to the partition that another lane reads."""

import msgspec

from mirrord.model.runs import Runs


class Writer(msgspec.Struct, frozen=True):
    """A lane of any flow that, according to the ledger of its flow, writes to this lane's source partition."""

    flow: str
    producer_id: int
    producer_epoch: int
    runs: Runs
    """The writer's target runs, which map its ordinals to offsets in this lane's source partition. This copy of the
    runs never changes."""
    ordinal: int = 0
    """`ordinal`, `offset` and `leader_epoch` are the writer's last resume position. `runs` contains all of the writer's
    records below `offset`."""
    offset: int = 0
    leader_epoch: int = -1
