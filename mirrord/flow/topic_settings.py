"""What a lane and its shell tell each other about the settings of the target topic, after that has refused a record."""

import msgspec


class AskSettings(msgspec.Struct, frozen=True):
    """Read the settings of the target topic that decide which records it takes."""

    question: int
    sync: bool
    """First alter what differs from the source, as far as the flow keeps settings in sync."""


class SettingsTold(msgspec.Struct, frozen=True):
    """The answer to `AskSettings`."""

    question: int
    seen: str
    """A digest of the settings; empty: they cannot be seen."""
    trouble: str = ""
    """Why the settings may still differ from those of the source."""
    may_pass: bool = False
    """The trouble may end: the cluster may answer, or somebody may grant a right."""
