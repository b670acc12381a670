"""Sequences of a producer: ordinals modulo 2^31."""

SEQUENCES = 1 << 31


def nearest(sequence: int, ordinal: int) -> int:
    """Return the ordinal with this sequence that is nearest to a known one (less than 2^30 away, which the
    resume positions ensure)."""
    ahead = (sequence - ordinal) % SEQUENCES
    return ordinal + (ahead if ahead < SEQUENCES // 2 else ahead - SEQUENCES)
