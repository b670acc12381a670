"""Failovers whose daemon and command are killed after each step of the plan: repeated, they always end the same way."""

import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from mirrord.ledger.facts.recovery import RecoveryMode
from mirrord.ledger.last_seen.group_positions import seen_groups
from mirrord.ledger.last_seen.source_ends import SeenEnds
from mirrord.supervision.rules.failover_plan import STEPS, Step
from tests.fixtures.altered_mirrord import DIES_AT
from tests.fixtures.daemon import SECONDS, Daemon, all_ends, conf, fill, unique
from tests.fixtures.failover import (
    ALTERED,
    MARKER,
    Gate,
    command,
    dying_failover,
    failover,
    groups_for,
    ledger_of,
    stays,
    steps_of,
    until,
    up_to,
)
from tests.fixtures.groups import commit, committed
from tests.fixtures.lab import LabPair
from tests.fixtures.mirror import create_topic, ends

AT_ONCE = 4
"""How many flows are worked on at the same time. Most of the time, they wait."""
KILLED = -9
COPIED = {0: 50, 1: 50}
"""Where the target topics end."""
FENCED = {partition: end + MARKER for partition, end in COPIED.items()}
"""Where the target topics end after the failover. No death has led to a second marker."""
WRITTEN = {0: 75, 1: 75}
"""Where the source topics end when the source is lost."""


class Doomed:
    """A flow with a daemon that dies after a certain step of its failover, or without a daemon."""

    def __init__(self, pair: LabPair, folder: Path, mode: RecoveryMode, step: Step) -> None:
        self.source, self.target = pair.source, pair.target
        self.mode: RecoveryMode = mode
        self.step: Step = step
        self.flow = unique(step.replace(" ", "-"))
        self.topic, self.into = self.flow, f"eu.{self.flow}"
        self.gate = Gate(folder, self.flow)
        create_topic(self.source, self.topic, 2)
        fill(self.source, self.topic, 2, 100)
        more = f"{groups_for(self.flow)}\n{self.gate.key}"
        self.path = conf(folder, self.source, self.target, self.topic, flow=self.flow, flow_more=more)
        self.lost = False
        """Whether the source has records that are not copied any more."""
        self.beyond_at: int | None = None
        """The expected position of the group `beyond` on the target, in partition 0: the end, if it is there at all."""

    @property
    def group(self) -> str:
        """A group that has read some of the records that are copied."""
        return f"{self.flow}-read"

    @property
    def beyond(self) -> str:
        """A group that has also read records that are lost."""
        return f"{self.flow}-beyond"

    def dying_daemon(self) -> Daemon:
        """Start a daemon, and wait until it has copied everything, and commits the positions of the group."""
        daemon = Daemon(self.path, module=ALTERED, environment={DIES_AT: self.step})
        daemon.until_copied(all_ends(self.source, self.topic))
        self.commit_first(daemon.until)
        return daemon

    def commit_first(self, wait: Callable[[Callable[[], object]], None]) -> None:
        commit(self.source, self.group, self.topic, {0: 20, 1: 30})
        wait(lambda: self.positions() == {0: 20, 1: 30})

    def begin(self) -> None:
        """Begin the failover with a command that is killed once the failover is in the ledger."""
        with subprocess.Popen(command(self.path, f"--{self.mode}"), stderr=subprocess.DEVNULL) as process:
            until(lambda: ledger_of(self.target, self.flow).recoveries)
            process.kill()
            assert process.wait() == KILLED

    def lose(self, daemon: Daemon) -> None:
        """Write records that are not copied any more, and wait until the ledger contains what was seen of them."""
        daemon.until(lambda: all(lane.state != "copying" for lane in daemon.flow().lanes))
        self.write_lost()
        commit(self.source, self.beyond, self.topic, {0: 70})
        self.beyond_at = COPIED[0]
        commit(self.source, self.group, self.topic, {0: 25, 1: 30})

        def is_seen() -> bool:
            state = ledger_of(self.target, self.flow)
            groups = {(each.group, each.offset) for each in seen_groups(state).positions}
            ends_seen = {where.partition: end.end for where, end in SeenEnds(state).ends.items()}
            return ends_seen == WRITTEN and (self.beyond, 70) in groups

        daemon.until(is_seen)
        daemon.until(lambda: self.positions() == {0: 25, 1: 30})

    def write_lost(self) -> None:
        fill(self.source, self.topic, 2, 50, first=100)
        self.lost = True

    def die(self, daemon: Daemon) -> None:
        """Let the failover go on, and wait for the death of the daemon after the step."""
        self.gate.open()
        assert daemon.process.wait(SECONDS) == KILLED, daemon.output
        assert steps_of(self.target, self.flow) == up_to(self.mode, self.step)

    def finish(self) -> None:
        """Repeat the command. Whatever has died before, the result is the same. Repeated once more, the command prints
        the receipt again."""
        receipt = failover(self.path, f"--{self.mode}")
        self.check(receipt)
        assert failover(self.path, f"--{self.mode}") == receipt

    def check(self, receipt: dict[str, Any]) -> None:
        assert steps_of(self.target, self.flow) == STEPS[self.mode]
        assert (receipt["outcome"], receipt["number"], receipt["mode"]) == ("complete", 1, self.mode)
        assert [each["step"] for each in receipt["steps"]] == [
            step for step in STEPS[self.mode] if step not in {"end", "finish"}
        ]
        assert (receipt["partitions"], receipt["names"]) == (2, {self.topic: self.into})
        places = ("partition", "start", "end", "target_end", "missing", "remark")
        lost = [(each, COPIED[each], WRITTEN[each], FENCED[each], [], "") for each in WRITTEN] if self.lost else []
        assert [tuple(each[place] for place in places) for each in receipt["lost"]] == lost
        assert receipt["lost_records"] == sum(end - start for _, start, end, *_ in lost)
        self.check_target()

    def check_target(self) -> None:
        """The target contains what was copied before the failover, and the groups are at their last positions."""
        assert ends(self.target, self.into) == FENCED
        expected = {0: 25, 1: 30} if self.lost else {0: 25, 1: 35}
        assert self.positions() == expected
        assert committed(self.target, self.beyond, self.into) == {0: self.beyond_at}

    def positions(self) -> dict[int, int | None]:
        return committed(self.target, self.group, self.into, COPIED)


@contextmanager
def workers() -> Iterator[Callable[[Callable[[Doomed], object], Sequence[Doomed]], None]]:
    """Yields a function that does something with several flows at the same time. The processes that it starts live
    until the end of the context."""
    with ThreadPoolExecutor(AT_ONCE) as pool:

        def every(work: Callable[[Doomed], object], flows: Sequence[Doomed]) -> None:
            faults: list[Exception] = []
            for doomed, future in [(each, pool.submit(work, each)) for each in flows]:
                fault = future.exception()
                if isinstance(fault, Exception):
                    fault.add_note(f"{doomed.mode}, killed after {doomed.step}")
                    faults.append(fault)
            if faults:
                raise ExceptionGroup("a failover went wrong", faults)

        yield every


def all_flows(folder: Path, flows: Sequence[Doomed]) -> Path:
    """Return a file with all these flows, for a daemon that has nothing to do with the others."""
    path = folder / f"{unique('all')}.toml"
    parts = [each.path.read_text().partition("[runtime]") for each in flows]
    tables = ["[[flows]]" + each[0].partition("[[flows]]")[2] for each in parts]
    head = parts[0][0].partition("[[flows]]")[0]
    path.write_text("\n".join([head, *tables, "[runtime]" + parts[0][2]]))
    return path


def never_copy_again(folder: Path, flows: Sequence[Doomed], revived: Sequence[Daemon]) -> None:
    """Neither the daemons that were started again nor a new one with all flows copies anything."""
    with Daemon(all_flows(folder, flows)) as daemon:
        for each in (daemon, *revived):
            each.until(lambda each=each: {flow.state for flow in each.status().flows} == {"ended"})
        for each in flows:
            fill(each.source, each.topic, 2, 20, first=150)
            commit(each.source, each.group, each.topic, {0: 49, 1: 49})
        stays(lambda: all(ends(each.target, each.into) == FENCED for each in flows))
        for each in flows:
            each.check_target()


def test_a_daemon_dies_after_each_step_of_a_planned_failover(lab_pair: LabPair, tmp_path: Path) -> None:
    """Every other daemon is started again. If it is not, the command carries out the rest."""
    flows = [Doomed(lab_pair, tmp_path, "planned", step) for step in STEPS["planned"]]
    with workers() as every, ExitStack() as daemons:
        revived: list[Daemon] = []

        def kill(doomed: Doomed) -> None:
            with doomed.dying_daemon() as daemon:
                doomed.begin()
                commit(doomed.source, doomed.group, doomed.topic, {0: 25, 1: 35})
                doomed.die(daemon)
            if STEPS["planned"].index(doomed.step) % 2 == 0:
                revived.append(daemons.enter_context(Daemon(doomed.path)))
            doomed.finish()

        every(kill, flows)
        never_copy_again(tmp_path, flows, revived)


def test_a_daemon_dies_after_each_step_when_the_source_is_lost(lab_pair: LabPair, tmp_path: Path) -> None:
    """Every other daemon is started again, while the source is gone."""
    flows = [Doomed(lab_pair, tmp_path, "source-lost", step) for step in STEPS["source-lost"]]
    with workers() as every, ExitStack() as daemons:
        revived: list[Daemon] = []
        dying: dict[Step, Daemon] = {}

        def begin(doomed: Doomed) -> None:
            dying[doomed.step] = daemon = daemons.enter_context(doomed.dying_daemon())
            doomed.begin()
            doomed.lose(daemon)

        def kill(doomed: Doomed) -> None:
            doomed.die(dying[doomed.step])
            if STEPS["source-lost"].index(doomed.step) % 2 == 0:
                revived.append(daemons.enter_context(Daemon(doomed.path)))
            doomed.finish()

        every(begin, flows)
        lab_pair.source.kill()
        every(kill, flows)
        lab_pair.source.restart()
        for each in flows:
            assert ends(lab_pair.source, each.topic) == WRITTEN
        never_copy_again(tmp_path, flows, revived)


def test_a_command_dies_after_each_step_when_the_source_is_lost(lab_pair: LabPair, tmp_path: Path) -> None:
    """There is no daemon: each command that is started carries out the failover itself."""
    flows = [Doomed(lab_pair, tmp_path, "source-lost", step) for step in STEPS["source-lost"]]
    with Daemon(all_flows(tmp_path, flows)) as daemon:
        daemon.until_copied(all_ends(lab_pair.source, *(each.topic for each in flows)))
        for each in flows:
            each.commit_first(daemon.until)
            commit(each.source, each.group, each.topic, {0: 25, 1: 30})
        daemon.until(lambda: all(each.positions() == {0: 25, 1: 30} for each in flows))
        daemon.kill()

    def kill(doomed: Doomed) -> None:
        doomed.write_lost()
        doomed.gate.open()
        assert dying_failover(doomed.path, doomed.step, "--source-lost") == KILLED
        assert steps_of(doomed.target, doomed.flow) == up_to(doomed.mode, doomed.step)
        doomed.finish()

    with workers() as every:
        every(kill, flows)
    never_copy_again(tmp_path, flows, [])


def test_a_command_dies_after_each_step_that_follows_the_copying(lab_pair: LabPair, tmp_path: Path) -> None:
    """The daemon of a planned failover dies as soon as everything is copied. Commands carry out the rest, and each of
    them dies after one step."""
    doomed = Doomed(lab_pair, tmp_path, "planned", "catch up")
    with doomed.dying_daemon() as daemon:
        doomed.begin()
        commit(doomed.source, doomed.group, doomed.topic, {0: 25, 1: 35})
        # The command may find these commits only in the ledger.
        daemon.until(lambda: doomed.positions() == {0: 25, 1: 35})
        doomed.die(daemon)
    for step in STEPS["planned"][2:]:
        assert dying_failover(doomed.path, step, "--planned") == KILLED
        assert steps_of(doomed.target, doomed.flow) == up_to("planned", step)
    doomed.finish()
    never_copy_again(tmp_path, [doomed], [])


def test_every_step_of_the_plan_is_a_place_of_death() -> None:
    """The flows above are made from the plan. This fails if a mode is added that they do not know."""
    assert set(STEPS) == {"planned", "source-lost"}
