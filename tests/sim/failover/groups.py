"""Consumer groups that read the source, and their positions on both clusters."""

import random
from dataclasses import dataclass, field
from typing import NamedTuple

HERE, THERE = ("orders", 0), ("eu.orders", 0)
"""The partition that they read, and its copy."""
NAMES = ("billing", "search", "stock")


class Commit(NamedTuple):
    """A position that was committed on the target."""

    by: str
    """The process."""
    group: str
    offset: int


@dataclass
class ReadingGroups:
    """All groups. They read the source only."""

    rng: random.Random
    source: dict[str, int] = field(default_factory=dict)
    """The committed offset of each group."""
    target: dict[str, int] = field(default_factory=dict)
    history: dict[str, list[int]] = field(default_factory=dict)
    """All commits of each group on the source."""
    reading: set[str] = field(default_factory=set)
    """Groups that have members."""
    commits: list[Commit] = field(default_factory=list)
    """All commits on the target."""

    def act(self, end: int) -> None:
        """Let consumers come, leave and commit. `end` is the end of the records that they see."""
        rng, group = self.rng, self.rng.choice(NAMES)
        if group not in self.reading:
            if rng.random() < 0.5:
                self.reading.add(group)
            return
        if rng.random() < 0.1:
            self.reading.discard(group)
            return
        before = self.source.get(group, 0)
        goes_back = rng.random() < 0.04
        offset = rng.randint(0, before) if goes_back or before >= end else rng.randint(before, end)
        if offset == before and group in self.source:
            return
        if before >= end and not goes_back:
            return
        self.source[group] = offset
        self.history.setdefault(group, []).append(offset)

    def commit(self, by: str, group: str, offset: int) -> None:
        """A process commits a position on the target."""
        self.target[group] = offset
        self.commits.append(Commit(by, group, offset))
