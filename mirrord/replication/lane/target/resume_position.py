"""The position at which a lane resumes."""

import msgspec


class ResumePosition(msgspec.Struct, frozen=True):
    """The position below which all records of the lane are known to be in the target log: the next ordinal, and the
    target offset after the last record."""

    ordinal: int
    target_offset: int
    leader_epoch: int = -1


NOTHING = ResumePosition(0, 0)
