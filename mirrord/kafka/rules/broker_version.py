"""Determines, from the newest request versions that a broker accepts, which Kafka release the broker matches.

A broker reveals nothing else about its release.
"""

from collections.abc import Mapping

_PRODUCE, _FETCH = 0, 1
# Source: the files in clients/src/main/resources/common/message of each Kafka release.
_RELEASES: tuple[tuple[str, int, int], ...] = (
    ("4.1 or newer", 13, 18),
    ("4.0", 12, 17),
    ("3.9", 11, 17),
    ("3.8", 11, 16),
    ("3.7", 10, 16),
    ("3.5 or 3.6", 9, 15),
    ("3.1 to 3.4", 9, 13),
    ("2.8 or 3.0", 9, 12),
)
"""Kafka releases, newest first, each with the newest versions of Produce and Fetch that its brokers accept."""


def like_release(offered: Mapping[int, tuple[int, int]]) -> str:
    """Return the release that the broker matches, such as "Kafka 3.9".

    `offered` is the broker's answer to ApiVersions: the lowest and highest version of each API, by API key.
    """
    produce, fetch = (offered.get(key, (0, -1))[1] for key in (_PRODUCE, _FETCH))
    for release, least_produce, least_fetch in _RELEASES:
        if produce >= least_produce and fetch >= least_fetch:
            return f"Kafka {release}"
    return "older than Kafka 2.8"
