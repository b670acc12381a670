"""Names the topics of the source that no flow copies, whatever its configuration selects: those whose names are not
valid in Kafka."""

from collections.abc import Sequence

MOST_SHOWN = 10
"""Maximum number of invalid names that are reported one by one. Whoever controls the source can report any number."""


def invalid_names(invalid: Sequence[str]) -> dict[str, str]:
    """Return one line for operators about each topic with an invalid name, by name. The names are already printable."""
    lines = {
        name: f'the source reports a topic with a name that is not valid in Kafka, which is not copied: "{name}"'
        for name in invalid[:MOST_SHOWN]
    }
    if len(invalid) > MOST_SHOWN and lines:
        name = invalid[MOST_SHOWN - 1]
        lines[name] += f" (and {len(invalid) - MOST_SHOWN} more such topics)"
    return lines
