"""Which attack runs when. Pure: a seed repeats it."""

import random
from typing import NamedTuple

from mirrord.kafka.protocol.api_versions import FETCH, METADATA

API_VERSIONS = 18
SASL_AUTHENTICATE = 36

STREAMS = (
    "frame of 2 GiB",
    "negative length",
    "endless bytes",
    "silence",
    "immediate close",
    "random bytes",
    "one byte a second",
    "wrong correlation id",
)
"""Attacks with bytes instead of an answer. Each begins at the first request of one API (`Phase.api`)."""
ABSURD_VERSIONS = "absurd ApiVersions"
MANY_PARTITIONS = "100,000 partitions"
ODD_NAMES = "control characters in names"
ELSEWHERE = "brokers that are others"
ANSWERS = (ABSURD_VERSIONS, MANY_PARTITIONS, ODD_NAMES, ELSEWHERE)
"""Attacks with the contents of ApiVersions and Metadata."""
BATCHES = (
    "zstd bomb",
    "gzip bomb",
    "2^31-1 records",
    "broken CRC",
    "offsets that run backwards",
    "records beyond the frame",
)
"""Attacks with record batches. Each has separate topics."""
LASTING = BATCHES[:-1]
"""Attacks whose topics have such batches until the end. The batches of the other one make whole answers unreadable,
which would hide the batches of all other topics."""
SCRAM = (
    "1 iteration",
    "10^9 iterations",
    "nonce of another client",
    "empty salt",
    "success without signature",
)
"""Attacks of a broker that requires SCRAM."""
REFUSED = SCRAM[:3]
"""A client that continues after one of these challenges endangers its password."""
HONEST = "none"
"""No attack: all answers are valid."""
ALL = (*STREAMS, *ANSWERS, *BATCHES)

_LEAST_S, _MOST_S = 20.0, 40.0
USUAL_MINUTES = 10.0
"""In a shorter run, each attack is shorter as well, so that all attacks run."""
_STAGES = (API_VERSIONS, METADATA.key, FETCH.key)


class Phase(NamedTuple):
    """One attack, for some seconds."""

    number: int
    attack: str
    api: int
    """The API whose first request begins an attack of `STREAMS`. Other requests get valid answers."""
    seconds: float


def rotation(attacks: tuple[str, ...], seed: int, minutes: float) -> list[Phase]:
    """Return phases that last `minutes` together. Every round contains each attack once, in random order."""
    chance = random.Random(seed)
    scale = min(1.0, minutes / USUAL_MINUTES)
    left, phases = minutes * 60, list[Phase]()
    waiting: list[str] = []
    while left > 0:
        waiting = waiting or chance.sample(attacks, len(attacks))
        seconds = min(left, chance.uniform(_LEAST_S, _MOST_S) * scale)
        phases.append(Phase(len(phases), waiting.pop(), chance.choice(_STAGES), seconds))
        left -= seconds
    return phases
