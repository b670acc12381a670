"""Relates sequence numbers to ordinals. The sequence numbers of a lane's producer are the ordinals modulo 2^31."""

SEQUENCES = 1 << 31


def nearest(sequence: int, ordinal: int) -> int:
    """Return the ordinal that has this sequence number and is nearest to `ordinal`. Resume positions ensure that the
    two ordinals are less than 2^30 apart."""
    ahead = (sequence - ordinal) % SEQUENCES
    return ordinal + (ahead if ahead < SEQUENCES // 2 else ahead - SEQUENCES)
