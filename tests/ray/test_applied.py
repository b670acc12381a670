"""The foreground process keeps what was applied for a supervisor that Ray starts again; here without Ray."""

from dataclasses import dataclass

from actors.daemon import RayDaemon
from mirrord.model.config import Config


class Method:
    """An actor's method."""

    def __init__(self, work: "Supervisor", name: str) -> None:
        self._work = work
        self._name = name

    async def remote(self, *arguments: bytes) -> bytes | None:
        return getattr(self._work, self._name)(*arguments)


@dataclass
class Supervisor:
    """What a supervisor was given since it was made."""

    given: bytes | None = None

    def applied(self) -> bytes | None:
        return self.given

    def apply(self, config: bytes) -> bytes:
        self.given = config
        return b""


class Actor:
    """A handle of it."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.applied = Method(supervisor, "applied")
        self.apply = Method(supervisor, "apply")


def daemon_of(supervisor: Supervisor) -> RayDaemon:
    daemon = RayDaemon(Config(clusters={}, flows=()), "logs")
    daemon._actor = Actor(supervisor)  # pyright: ignore[reportPrivateUsage]
    return daemon


async def test_what_was_applied_is_applied_again_when_the_supervisor_is_made_again() -> None:
    supervisor = Supervisor()
    daemon = daemon_of(supervisor)
    await daemon.keep_applied()
    assert supervisor.given is None
    supervisor.given = b"second"
    await daemon.keep_applied()
    supervisor.given = None
    await daemon.keep_applied()
    assert supervisor.given == b"second"


async def test_going_back_to_the_first_configuration_stays() -> None:
    supervisor = Supervisor()
    daemon = daemon_of(supervisor)
    for given in (b"second", b"as at the start"):
        supervisor.given = given
        await daemon.keep_applied()
    await daemon.keep_applied()
    assert supervisor.given == b"as at the start"
