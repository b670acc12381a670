"""The dead-letter topic of the simulation."""

import random

from mirrord.ledger.facts.quarantine import Quarantined
from mirrord.replication.lane.dead_letter_signals import Park, ParkAnswer
from tests.sim import toy


class FakeLetters:
    """The source offsets and numbers of its records."""

    def __init__(self) -> None:
        self.lying: list[tuple[int, int]] = []

    def park(self, question: Park, chance: random.Random | None) -> ParkAnswer:
        """Park in one transaction, whose result may not be heard of."""
        ((_, number),) = toy.records(question.data)
        letter = (question.offset, number)
        if chance and chance.random() < 0.2:
            return ParkAnswer(question.question, -1, "the target does not take it")
        if letter not in self.lying[max(question.behind, 0) :]:
            self.lying.append(letter)
        if chance and chance.random() < 0.2:
            return ParkAnswer(question.question, -1, "nobody answers")
        return ParkAnswer(question.question, self.lying.index(letter))

    def check(self, fact: Quarantined) -> None:
        """Check that what a policy skips is where the ledger says."""
        lies = 0 <= fact.letters_at < len(self.lying) and self.lying[fact.letters_at][0] == fact.start
        if fact.letters != 1 or not lies:
            raise AssertionError(f"left out, and not where it should lie: {fact}, {self.lying}")
