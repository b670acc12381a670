"""What the checks of the simulator raise."""


class Violation(AssertionError):
    """Something was lost, duplicated, reordered or recorded wrongly."""
