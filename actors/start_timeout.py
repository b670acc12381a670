"""How long an actor may take to start."""

START_S = 30.0
"""Timeout, in seconds, for the first start. An actor's process usually starts within a second or two."""
LONGEST_START_S = 240.0


class StartTimeout:
    """The timeout for the next start, in seconds.

    A timeout ends the actor's process, and the next start begins from the beginning. On a machine so busy that a start
    takes longer than a fixed timeout, no actor would ever start. So the timeout doubles after each start that ran out
    of time, up to `LONGEST_START_S`. After a start that succeeded, the next one has twice the time that this one took.
    """

    def __init__(self) -> None:
        self.seconds = START_S

    def expired(self, allowed_s: float) -> None:
        """Record that a start with this timeout did not finish. Starts that run side by side count once."""
        self.seconds = max(self.seconds, min(2 * allowed_s, LONGEST_START_S))

    def finished(self, took_s: float) -> None:
        """Record how long a successful start took, in seconds."""
        self.seconds = max(START_S, min(2 * took_s, LONGEST_START_S))
