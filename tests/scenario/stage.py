"""The simulator without chance: a scenario decides what happens, and every signal, effect and fact becomes a line."""

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from mirrord.kafka.protocol.record_batch import HEADER
from mirrord.ledger.facts.core import AnyFact, Entry
from mirrord.ledger.fold import fold
from mirrord.ledger.state import FlowState
from mirrord.replication.lane import signals
from tests.fixtures.attic import no_room
from tests.scenario import words
from tests.sim.host import Host, Request, Shape
from tests.sim.target import FakeTarget
from tests.sim.world import World

if TYPE_CHECKING:
    from _typeshed import SupportsLenAndGetItem

Drawn = TypeVar("Drawn")
Voice = Literal["all", "quiet", "silent"]
"""How much of what happens becomes output: all of it; no signals, and only the effects in `FOR_PEOPLE`; nothing."""
FOR_PEOPLE = (signals.Halted, signals.Lost, signals.Drained, signals.Gone)
"""Effects that report to people instead of asking for something."""
MOST_STEPS = 5000


class NoChance(random.Random):
    """Draws the same each time, so that nothing in a scenario is left to chance."""

    def random(self) -> float:
        """Return a number in the middle: what rarely happens in the simulator never happens, the rest always does."""
        return 0.5

    def randint(self, a: int, b: int) -> int:  # noqa: ARG002
        """Return the most: a fetch returns as many batches as it can."""
        return b

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:  # noqa: ARG002
        """Return the least: no request of a lost connection arrives by itself."""
        return 0 if stop is None else start

    def choice(self, seq: "SupportsLenAndGetItem[Drawn]") -> "Drawn":
        """Return the first."""
        return seq[0]


class SpeakingHost(Host):
    """A replicator that says what its lane learns and asks for."""

    @property
    def stage(self) -> "Stage":
        assert isinstance(self.world, Stage)
        return self.world

    def take(self, signal: signals.Input) -> None:
        facts = self._appended().get(getattr(signal, "tag", -1), ())
        self.stage.say_message(f"{self.name} < {words.message(signal, facts)}")
        super().take(signal)

    def _appended(self) -> dict[int, tuple[AnyFact, ...]]:
        """The facts of every append, by its tag."""
        return self.stage.appended.setdefault(self.name, {})

    def perform(self, effect: signals.Effect) -> None:
        line = f"{self.name} > {words.message(effect)}"
        if isinstance(effect, FOR_PEOPLE):
            self.stage.say(line)
        else:
            self.stage.say_message(line)
        if isinstance(effect, signals.Append):
            self._appended()[effect.tag] = effect.facts
        super().perform(effect)

    def save_progress(self) -> None:
        before = self.stage.progress
        super().save_progress()
        if self.stage.progress is not before and self.stage.progress is not None:
            self.stage.say(f"state topic: {words.progress_line(self.stage.progress)}")


class SpeakingTarget(FakeTarget):
    """A target partition that says what its brokers append and refuse."""

    def __init__(self, stage: "Stage") -> None:
        super().__init__(stage.shape.expiry_ms)
        self.keys = stage.shape.keys if stage.shape.cleans else 0
        self._stage = stage

    def produce(self, at: int, batch: bytes, now_ms: int) -> tuple[int, int]:
        end = self.brokers[at].end
        error, base = super().produce(at, batch, now_ms)
        header = HEADER.unpack_from(batch, 0)
        ordinals = f"{words.spanned('ordinal', header[11], header[11] + header[12])}"
        if error:
            result = f"refuses {ordinals}: {words.error_name(error)}"
        elif self.brokers[at].end > end:
            result = f"appends {ordinals} at {words.spanned('offset', base, base + header[12])}"
        else:
            result = f"has {ordinals} already, at {words.spanned('offset', base, base + header[12])}"
        self._stage.say(f"broker {at + 1} {result}")
        return error, base

    def replicate(self) -> bool:
        follower = self.brokers[1 - self.leader]
        end = follower.end
        done = super().replicate()
        if follower.end > end:
            offsets = words.spanned("offset", end, follower.end)
            self._stage.say(f"broker {2 - self.leader} replicates {offsets}, high watermark {self.high_watermark}")
        return done


class Stage(World):
    """The simulator's world, in which a scenario decides what happens next."""

    host_type = SpeakingHost

    def __init__(self, shape: Shape) -> None:
        self.lines: list[str] = []
        self.voice: Voice = "all"
        self.appended: dict[str, dict[int, tuple[AnyFact, ...]]] = {}
        self._read = FlowState(memory=no_room())
        super().__init__(0, shape)
        self.rng = self.source.rng = NoChance()
        self.saves, self.faults = 1.0, False
        self.target = SpeakingTarget(self)
        self.lines.clear()

    def say(self, line: str) -> None:
        """Add a line to the output."""
        if self.voice != "silent":
            self.lines.append(line)

    def say_message(self, line: str) -> None:
        """Add a line about a signal or an effect."""
        if self.voice == "all":
            self.lines.append(line)

    def write_entry(self, entry: Entry) -> int:
        offset = super().write_entry(entry)
        for fact, binds in zip(entry.facts, fold(self._read, entry, offset), strict=True):
            self.say(f"ledger {offset}: {words.fact_line(fact, binds=binds)}")
        return offset

    def replicator(self, name: str) -> Host:
        """Return a replicator. Raises KeyError if there is none of that name."""
        found = [host for host in self.hosts if host.name == name]
        if not found:
            raise KeyError(name)
        return found[0]

    # --- what can happen, one method a kind; each returns whether it did

    def deliver(self, host: Host) -> bool:
        """Answer the oldest question, or deliver the oldest answer."""
        return self._inbox(host, "ask", "tell")

    def fetch(self, host: Host) -> bool:
        """The source answers a fetch. A fetch at the end of the log waits."""
        return self._inbox(host, "fetch")

    def _inbox(self, host: Host, *kinds: str) -> bool:
        for at, each in enumerate(host.inbox):
            if each[0] in kinds and self.answerable(each):
                self.do(("inbox", (host, at)))
                return True
        return False

    def append(self, host: Host) -> bool:
        """The oldest append reaches the ledger."""
        return self._happens(bool(host.appends), ("append", host))

    def read(self, host: Host) -> bool:
        """The replicator reads the next entry of the ledger."""
        return self._happens(host.state.next_offset < len(self.ledger), ("read", host))

    def answer(self, host: Host) -> bool:
        """The target's oldest answer to a produce request arrives, if it is committed or an error."""
        return self._happens(bool(host.answers) and self._answerable(host.answers[0]), ("answer", host))

    def wake(self, host: Host) -> bool:
        """A timer that is due fires."""
        return self._happens(any(at <= self.now for at, _ in host.timers), ("timer", host))

    def produce(self, host: Host) -> bool:
        """The oldest produce request reaches the broker, also that of a dead replicator."""
        sent = self.requests(host)
        return self._happens(bool(sent), ("arrive", sent[0] if sent else None))

    def replicate(self) -> bool:
        """The follower copies a batch."""
        return self._happens(self._behind(), ("replicate", None))

    def _happens(self, can: bool, choice: tuple[str, Any]) -> bool:
        if can:
            self.do(choice)
        return can

    def requests(self, host: Host) -> list[Request]:
        """The produce requests of a replicator that did not reach the broker yet."""
        return [request for request in self.wire if request.host is host]

    # --- until nothing more happens

    def run(self, hosts: Sequence[Host], held: frozenset[str]) -> None:
        """Let everything happen that needs no time, in a fixed order; not what is `held`."""
        kinds = ("deliver", "fetch", "append", "read", "produce", "replicate", "answer", "wake")
        for _ in range(MOST_STEPS):
            if not any(self._step(kind, hosts) for kind in kinds if kind not in held):
                return
        raise AssertionError(f"more happens than {MOST_STEPS} steps: {self.lines[-10:]}")

    def _step(self, kind: str, hosts: Sequence[Host]) -> bool:
        if kind == "replicate":
            return self.replicate()
        running = [host for host in hosts if kind == "produce" or (host.alive and not host.paused)]
        return any(getattr(self, kind)(host) for host in running)

    def wait(self, seconds: float, hosts: Sequence[Host], held: frozenset[str]) -> None:
        """Let time pass, and everything happen meanwhile."""
        until = self.now + seconds
        self.run(hosts, held)
        while self.now < until:
            later = self.next_time()
            self.advance(min(until, later) if later is not None and later > self.now else until)
            self.run(hosts, held)
