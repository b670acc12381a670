"""The sequence numbers of a lane's producer, which are the ordinals modulo 2^31."""

SEQUENCES = 1 << 31


def nearest(sequence: int, ordinal: int) -> int:
    """Return the ordinal with this sequence number that is nearest to a known ordinal. Resume positions ensure that the
    two are less than 2^30 apart."""
    ahead = (sequence - ordinal) % SEQUENCES
    return ordinal + (ahead if ahead < SEQUENCES // 2 else ahead - SEQUENCES)
