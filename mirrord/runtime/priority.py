"""The CPU priority of processes whose work can wait: jobs and drills."""

import os

NICE = 10
"""By how much the niceness of such a process rises. Daemons and brokers on the same machine then get the CPU first."""


def lower_priority() -> None:
    """Let all other processes of the machine have the CPU first. It cannot be undone."""
    os.nice(NICE)
