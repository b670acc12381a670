"""Finds the ordinal of a record by its sequence number. The sequence number of a record that a lane copies is the
record's ordinal modulo 2^31."""

SEQUENCES = 1 << 31


def nearest(sequence: int, ordinal: int) -> int:
    """Return the ordinal that has this sequence number and is nearest to `ordinal`. The result is correct only if the
    two ordinals are less than 2^30 apart. Therefore a lane stops fetching when it is 2^29 records ahead of its resume
    position (see `mirrord.replication.lane.target.unconfirmed_limit`)."""
    ahead = (sequence - ordinal) % SEQUENCES
    return ordinal + (ahead if ahead < SEQUENCES // 2 else ahead - SEQUENCES)
