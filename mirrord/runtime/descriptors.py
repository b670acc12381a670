"""The limit on the number of files and connections that a process may have open."""

import resource
from contextlib import suppress

WANTED = 65_536


def raise_descriptor_limit() -> int:
    """Raise the limit to `WANTED`, or to the highest value that the system permits, and return it.

    Connections to all brokers and the clients of the HTTP API count toward it, and the default of many systems is
    1,024.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
