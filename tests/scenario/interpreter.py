"""Plays scenario files: commands and the output that they must have (README.md beside this file).

`play` returns the text of a file with the output that its commands have now.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from mirrord.config.schema import OnReject
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.core import AnyFact
from mirrord.ledger.facts.quarantine import QuarantineSkipped
from mirrord.ledger.facts.seeks import LaneSought
from mirrord.ledger.quarantine import waiting
from mirrord.replication.lane.signals import AppendFailed, Drain
from tests.scenario import views, words
from tests.scenario.stage import Stage, Voice
from tests.sim import late_bytes, truth
from tests.sim.host import LANE, Host, Shape
from tests.sim.themes import OLD_MS

SEPARATOR = "----"
NOTHING = "ok"
HELD = frozenset({"deliver", "fetch", "append", "read", "produce", "replicate", "answer", "wake"})
VOICES: dict[str, Voice] = {"quiet": "quiet", "silent": "silent"}
OPERATOR = Origin("ada@host", "", 1_700_000_000_000)


class ScenarioError(Exception):
    """A command that cannot be carried out, with the line where it is."""


@dataclass
class Command:
    """One line: a name, words, and options as `key=value`."""

    name: str
    words: list[str] = field(default_factory=list[str])
    options: dict[str, str] = field(default_factory=dict[str, str])
    voice: Voice = "all"

    @staticmethod
    def parse(line: str) -> "Command":
        """Split a line."""
        name, *rest = line.split()
        command = Command(name)
        for word in rest:
            key, equals, value = word.partition("=")
            if equals:
                command.options[key] = value
            elif word in VOICES:
                command.voice = VOICES[word]
            else:
                command.words.append(word)
        return command


def play(text: str) -> str:
    """Play a file. Raises ScenarioError for a command that makes no sense, and `truth.Violation` if records are lost,
    doubled, reordered or reported wrongly."""
    interpreter, out = Interpreter(), list[str]()
    for number, prose, commands in blocks(text):
        out += prose
        if not commands:
            continue
        said: list[str] = []
        for line in commands:
            try:
                said += interpreter.play(Command.parse(line))
            except (ScenarioError, KeyError, ValueError, IndexError) as error:
                raise ScenarioError(f"line {number}: {line}: {error!r}") from error
            except AssertionError as error:
                error.add_note(f"line {number}: {line}")
                raise
        out += [*commands, SEPARATOR, *(said or [NOTHING])]
    return "\n".join(out) + "\n"


def usages() -> Iterator[str]:
    """Every command as a row of the table in README.md."""
    for name, method in vars(Interpreter).items():
        if name.startswith("do_"):
            usage, _, meaning = " ".join((method.__doc__ or "").split()).partition(": ")
            yield f"| `{usage}` | {meaning} |"


def blocks(text: str) -> Iterator[tuple[int, list[str], list[str]]]:
    """The line number, the prose and blank lines in front, and the commands of each block; old output is dropped."""
    prose, commands, in_output = list[str](), list[str](), False
    for number, line in enumerate(text.splitlines(), 1):
        if in_output:
            in_output = bool(line.strip())
            prose += [] if in_output else [line]
        elif line.strip() == SEPARATOR and commands:
            yield number - len(commands), prose, commands
            prose, commands, in_output = [], [], True
        elif line.strip() and not line.startswith("#"):
            commands.append(line)
        elif commands:
            raise ScenarioError(f"no {SEPARATOR} after {commands[-1]!r}")
        else:
            prose.append(line)
    if commands:
        raise ScenarioError(f"no {SEPARATOR} after {commands[-1]!r}")
    yield 0, prose, []


class Interpreter:
    """Carries out commands on a stage."""

    def __init__(self) -> None:
        self._stage: Stage | None = None
        self._shape = Shape(hosts=3)

    @property
    def stage(self) -> Stage:
        """The stage, built when it is first needed: `setup` comes before that."""
        if self._stage is None:
            self._stage = Stage(self._shape)
        return self._stage

    def play(self, command: Command) -> list[str]:
        """Carry out a command; the lines that it says."""
        method: Callable[[Command], None] | None = getattr(self, f"do_{command.name.replace('-', '_')}", None)
        if method is None:
            raise ScenarioError("there is no such command")
        if command.name != "setup":
            self.stage.voice = command.voice
        method(command)
        if command.name == "setup":
            return []
        truth.check(self.stage)
        said, self.stage.lines = self.stage.lines, []
        return said

    def do_setup(self, command: Command) -> None:
        """setup [old-records] [keys=N] [on-reject=POLICY]: Comes first; sets what differs from the defaults.

        `old-records`: all records are older than `producer.id.expiration.ms`. `keys`: the target topic is compacted,
        and its records have N keys, by their numbers.
        """
        if self._stage is not None:
            raise ScenarioError("setup must be the first command")
        shape = self._shape
        if "old-records" in command.words:
            shape.record_age_ms, shape.forgetting = OLD_MS, True
        if "keys" in command.options:
            shape.cleans, shape.keys = True, int(command.options["keys"])
        if "on-reject" in command.options:
            shape.on_reject = msgspec.convert(command.options["on-reject"], OnReject)

    # --- the source

    def do_write(self, command: Command) -> None:
        """write N [transaction=P]: A client writes N records as one batch, in a transaction of producer P if named."""
        source, count = self.stage.source, int(command.words[0])
        first, number = source.end, source.number + 1
        source.append(count, self.stage.record_ms(), int(command.options.get("transaction", "-1")))
        numbers = words.spanned("record", number, source.number + 1)
        self.stage.say(f"{words.spanned('source offset', first, source.end)}: {numbers}")

    def do_commit(self, command: Command) -> None:
        """commit P: The transaction of producer P commits. Its marker takes an offset."""
        self._finish(command, commit=True)

    def do_abort(self, command: Command) -> None:
        """abort P: The transaction aborts."""
        self._finish(command, commit=False)

    def _finish(self, command: Command, *, commit: bool) -> None:
        at = self.stage.source.end
        self.stage.source.finish(int(command.words[0]), self.stage.record_ms(), commit=commit)
        self.stage.say(f"source offset {at}: transaction marker")

    def do_compact(self, command: Command) -> None:
        """compact source OFFSET: The log cleaner of the source removes the record at this offset."""
        _is(command, "source")
        source, offset = self.stage.source, int(command.words[1])
        self.stage.shape.compaction = True
        batch = next(each for each in source.log if each.base <= offset <= each.last)
        source.remove(batch, [at for at, _ in batch.records].index(offset))
        if not batch.records:
            source.log.remove(batch)

    def do_truncate(self, command: Command) -> None:
        """truncate source END: An unclean election on the source. The log of the new leader ends at this offset."""
        _is(command, "source")
        source, end = self.stage.source, int(command.words[1])
        self.stage.shape.truncation = True
        source.truncate(sum(batch.base >= end for batch in source.log))
        _must(source.end == end, f"the source's log ends at {source.end}: an election takes whole batches")
        epoch, begun = source.epochs[-1]
        self.stage.say(f"source leader epoch {epoch} begins at offset {begun}")

    def do_expire(self, command: Command) -> None:
        """expire source START: Retention deletes all source records below this offset."""
        _is(command, "source")
        source, start = self.stage.source, int(command.words[1])
        self.stage.shape.retention = True
        source.expire(sum(batch.last < start for batch in source.log))
        _must(source.start == start, f"the source's log begins at {source.start}: retention takes whole batches")
        self.stage.say(f"source log start offset {source.start}")

    # --- replicators

    def do_start(self, command: Command) -> None:
        """start NAME: A replicator takes the lane. Names are r1, r2, and so on, in this order."""
        stage, (name,) = self.stage, command.words
        _must(name == f"r{stage.attempts + 1}", f"the next replicator is r{stage.attempts + 1}")
        stage.start_host(former_dead=not any(host.alive for host in stage.hosts))

    def do_crash(self, command: Command) -> None:
        """crash NAME: The process is killed. Requests on the wire still arrive, unless `lose` or `delay` follows."""
        host = self._host(command)
        host.alive = False
        host.sent.clear()
        host.answers.clear()

    def do_pause(self, command: Command) -> None:
        """pause NAME: The process stops, for example in a long garbage collection."""
        self._host(command).paused = True

    def do_resume(self, command: Command) -> None:
        """resume NAME: A paused process continues."""
        self._host(command).paused = False

    def do_disconnect(self, command: Command) -> None:
        """disconnect NAME: The connection to the target ends, and its requests on the wire are lost."""
        self._host(command).disconnect()

    def do_handover(self, command: Command) -> None:
        """handover FROM TO: The lane is drained and given to the next replicator, with its last progress record."""
        stage, (former, name) = self.stage, command.words
        stage.shape.handed = True
        host = stage.replicator(former)
        host.take(Drain())
        stage.run([host], frozenset())
        _must(not host.alive, f"{former} did not leave")
        self.do_start(Command("start", [name]))

    def do_mark(self, command: Command) -> None:
        """mark NAME: The replicator saves the lane's progress record, as it does once a second."""
        self._host(command).save_progress()

    def do_metadata(self, command: Command) -> None:
        """metadata NAME: The replicator learns from the metadata of the target who leads the partition."""
        self.stage.do(("moved", self._host(command)))

    # --- what happens next

    def do_run(self, command: Command) -> None:
        """run [NAME ...] [hold=KIND,...]: Everything happens that takes no time, except the kinds to hold."""
        self.stage.run(*self._who_and_what(command, command.words))

    def do_wait(self, command: Command) -> None:
        """wait SECONDS [NAME ...] [hold=KIND,...]: The same, while time passes."""
        self.stage.wait(float(command.words[0]), *self._who_and_what(command, command.words[1:]))

    def _who_and_what(self, command: Command, names: list[str]) -> tuple[Sequence[Host], frozenset[str]]:
        held = frozenset(filter(None, command.options.get("hold", "").split(",")))
        _must(held <= HELD, f"hold is one of {', '.join(sorted(HELD))}")
        return [self.stage.replicator(name) for name in names] or self.stage.hosts, held

    def do_deliver(self, command: Command) -> None:
        """deliver NAME: The lane's oldest question is answered."""
        host = self._host(command)
        _must(self.stage.deliver(host), "no question is open")
        if any(kind == "tell" for kind, _ in host.inbox):
            self.stage.deliver(host)

    def do_append(self, command: Command) -> None:
        """append NAME [unknown/late]: Its oldest append reaches the ledger.

        `unknown`: it does, but the replicator gets no answer. `late`: the replicator gets no answer, and `late-append`
        appends it.
        """
        host = self._host(command)
        fate = command.words[1] if len(command.words) > 1 else ""
        if not fate:
            _must(self.stage.append(host), "there is nothing to append")
            return
        tag, entry = host.appends.popleft()
        _must(fate in {"unknown", "late"}, "an append is unknown or late")
        if fate == "unknown":
            self.stage.write_entry(entry)
        else:
            self.stage.stray.append(entry)
        host.take(AppendFailed(tag, host.record()))

    def do_late_append(self, _: Command) -> None:
        """late-append: An append that the replicator has given up reaches the ledger."""
        self.stage.write_entry(self.stage.stray.pop(0))

    def do_produce(self, command: Command) -> None:
        """produce NAME: Its oldest produce request reaches the broker."""
        _must(self.stage.produce(self._host(command)), "no produce request is on the wire")

    def do_lose(self, command: Command) -> None:
        """lose NAME [N]: Its N oldest produce requests on the wire never arrive; without a number, none does."""
        host = self._host(command)
        requests = self.stage.requests(host)
        for request in requests[: int(command.words[1]) if len(command.words) > 1 else None]:
            self.stage.wire.remove(request)

    def do_delay(self, command: Command) -> None:
        """delay NAME: Its produce requests on the wire arrive later than any timeout allows for, with `late`."""
        self.stage.shape.late = True
        for request in self.stage.requests(self._host(command)):
            self.stage.forsake(request)

    def do_late(self, _: Command) -> None:
        """late: The oldest delayed produce request reaches the broker."""
        _must(bool(self.stage.limbo), "no produce request is delayed")
        late_bytes.arrive(self.stage)

    def do_answer(self, command: Command) -> None:
        """answer NAME: The broker's oldest answer to a produce request reaches the replicator."""
        _must(self.stage.answer(self._host(command)), "no answer is on its way")

    def do_replicate(self, _: Command) -> None:
        """replicate: The follower of the target partition copies a batch."""
        _must(self.stage.replicate(), "the follower has everything")

    # --- the target

    def do_elect(self, command: Command) -> None:
        """elect source/target [unclean]: Another broker leads. `unclean`: it may lack committed records."""
        if command.words[0] == "source":
            self.stage.source.elect()
            epoch, begun = self.stage.source.epochs[-1]
            self.stage.say(f"source leader epoch {epoch} begins at offset {begun}")
            return
        _is(command, "target")
        target, is_unclean = self.stage.target, "unclean" in command.words
        lacks = target.brokers[1 - target.leader].end < target.high_watermark
        _must(is_unclean or not lacks, "the follower lacks committed records: the election would be unclean")
        self.stage.shape.unclean |= is_unclean
        target.elect()
        target.learn(self.stage.wall_ms)
        end = target.brokers[target.leader].end
        self.stage.say(f"broker {target.leader + 1} leads in leader epoch {target.epoch}, log end offset {end}")

    def do_shrink_isr(self, _: Command) -> None:
        """shrink-isr: The follower of the target partition leaves the ISR, and the leader commits alone."""
        self.stage.target.in_sync = False
        self.stage.target.advance()

    def do_forget(self, command: Command) -> None:
        """forget target: The brokers forget producers whose last record is older than `producer.id.expiration.ms`."""
        _is(command, "target")
        for broker in range(2):
            self.stage.target.forget(broker, self.stage.wall_ms)

    def do_refuse(self, command: Command) -> None:
        """refuse ERROR [times=N] [then=forget]: The leader refuses produce requests, and then forgets producers."""
        target = self.stage.target
        target.refusal, target.refusals_left = int(ErrorCode[command.words[0]]), int(command.options.get("times", "1"))
        target.forget_after = command.options.get("then") == "forget"

    def do_foreign(self, command: Command) -> None:
        """foreign N: Another client writes N records into the target partition."""
        self.stage.shape.foreign = True
        start = self.stage.target.brokers[self.stage.target.leader].end
        self.stage.target.foreign(int(command.words[0]), self.stage.wall_ms)
        offsets = words.spanned("offset", start, start + int(command.words[0]))
        self.stage.say(f"another client appends at {offsets}")

    def do_clean(self, command: Command) -> None:
        """clean target: The log cleaner of both brokers removes records whose key has a newer record."""
        _is(command, "target")
        for broker in range(2):
            self.stage.target.clean(broker, self.stage.target.high_watermark)

    def do_poison(self, command: Command) -> None:
        """poison NUMBER ...: The target refuses the records with these numbers."""
        self.stage.shape.poison = True
        self.stage.target.poison.update(map(int, command.words))

    def do_alter(self, command: Command) -> None:
        """alter target: An operator alters a config of the target topic, so that it accepts these records."""
        _is(command, "target")
        target = self.stage.target
        target.former_poison |= target.poison
        target.poison.clear()
        target.settings += 1

    # --- the operator

    def do_skip(self, _: Command) -> None:
        """skip: An operator skips the record that the lane waits for (`mirrord quarantine skip`)."""
        record = self.stage.truth.lanes.get(LANE)
        parked = waiting(record.quarantine) if record is not None else None
        if parked is None:
            raise ScenarioError("the lane waits for no decision")
        self._order(QuarantineSkipped(LANE, parked.start, parked.end, OPERATOR))

    def do_seek(self, command: Command) -> None:
        """seek OFFSET: An operator lets the lane continue at this source offset (`mirrord seek`)."""
        self.stage.shape.seeks = True
        known = self.stage.progress.source_offset if self.stage.progress is not None else 0
        self._order(LaneSought(LANE, known, int(command.words[0]), self.stage.source.start, OPERATOR))

    def _order(self, fact: AnyFact) -> None:
        self.stage.write((fact,), 1)

    # --- what there is

    def do_lane(self, command: Command) -> None:
        """lane NAME: Shows phase and position of its lane."""
        lane = self._host(command).lane
        state = f"{lane.phase.value}, next ordinal {lane.acked}, next source offset {lane.position}"
        self.stage.say(f"{command.words[0]}: {state}{f': {lane.halt.line}' if lane.halt.line else ''}")

    def do_source(self, _: Command) -> None:
        """source: Shows the batches of the source log."""
        self._show(views.source(self.stage))

    def do_log(self, _: Command) -> None:
        """log: Shows the batches of the target log, as its leader has them."""
        self._show(views.log(self.stage))

    def do_map(self, _: Command) -> None:
        """map: Shows the offset map: its runs, and the translation of every source offset."""
        self._show(views.offset_map(self.stage))

    def do_check(self, _: Command) -> None:
        """check: Everything has arrived once, or has a true verdict. Comes last."""
        truth.check(self.stage, final=True)
        self._show(views.summary(self.stage))

    def _show(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.stage.say(line)

    def _host(self, command: Command) -> Host:
        return self.stage.replicator(command.words[0])


def _is(command: Command, side: str) -> None:
    _must(command.words[0] == side, f"{command.name} is for the {side}")


def _must(holds: bool, why: str) -> None:
    if not holds:
        raise ScenarioError(why)
