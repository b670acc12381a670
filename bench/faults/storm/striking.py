"""Strikes at random until the time is over, and measures how long each fault interrupts the records."""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from bench.faults.storm.ground import Ground, Side, part
from bench.faults.storm.kinds import SEVERAL_AT_ONCE, TWO_AT_ONCE, Kind, Order
from bench.faults.storm.own_strikes import DAEMON, OWN
from bench.faults.storm.strikes import STRIKES
from bench.faults.storm.watch import MOST_S, Watch
from bench.harness.daemon import target_name

TWO_SHARE = 0.2
"""Share of faults during which another one begins."""
_GAP_S = 1.5
_TRIES_S = 5.0
_LOOK_S = 0.2


class Recovery(NamedTuple):
    """The seconds from a strike until every partition holds a record that was written after it."""

    source_s: float
    """The same on the source: how long the brokers themselves were interrupted."""
    target_s: float
    healed_s: float
    """The seconds from the end of the fault until the target holds a record that was written after it."""


@dataclass
class Record:
    """What happened in a chapter."""

    faults: Counter[str] = field(default_factory=Counter[str])
    recoveries: defaultdict[str, list[Recovery]] = field(default_factory=lambda: defaultdict(list))
    restarts: int = 0
    """How often the daemon ended by itself and was started again."""
    node_restarts: int = 0
    """The same for brokers and controllers."""
    failures: list[str] = field(default_factory=list[str])
    """Faults after which the copy did not recover in time, and other failures."""
    unfed: int = 0
    """Faults after which the copy did not recover because the source itself did not."""


Lost = tuple[Side, str, int]
"""A partition that has not recovered: its side, topic and number."""


def unfed(lost: Collection[Lost]) -> set[Lost]:
    """Return the partitions of the target that cannot recover, because their source has not recovered either."""
    fed_by_lost = {(target_name(topic), partition) for side, topic, partition in lost if side == "source"}
    return {each for each in lost if each[0] == "target" and each[1:] in fed_by_lost}


class Striker:
    """Strikes at a ground."""

    def __init__(
        self, ground: Ground, order: Order, watches: Mapping[Side, Watch], chance: Random, *, at_once: int = 1
    ) -> None:
        """If `at_once` is above 1, this many faults last at any time. They say little about recovery, because each of
        them may interrupt the records while another one is healed."""
        self.record = Record()
        self._at_once = at_once
        self._ground = ground
        self._order = order
        self._watches = watches
        self._chance = chance
        self._lock = threading.Lock()
        self._number = 0

    def run(self, seconds: float) -> None:
        """Strike for this time, and return when all faults are healed. Raises EnvironmentFault."""
        end = time.monotonic() + seconds
        threads = [threading.Thread(target=self._strike_until, args=(end,)) for _ in range(self._at_once - 1)]
        for thread in threads:
            thread.start()
        try:
            self._lead_until(end)
        finally:
            for thread in threads:
                thread.join()

    def _lead_until(self, end: float) -> None:
        """Strike, and start again what has ended by itself."""
        while self._continues(end):
            self._ground.streams.check()
            self.keep_daemon()
            self._keep_nodes()
            if self._at_once > 1:
                self._one(self._kind(), SEVERAL_AT_ONCE)
            elif self._chance.random() < TWO_SHARE:
                both = [threading.Thread(target=self._one, args=(self._kind(), TWO_AT_ONCE)) for _ in range(2)]
                for thread in both:
                    thread.start()
                    time.sleep(self._chance.random() * 2)
                for thread in both:
                    thread.join()
            else:
                self._one(self._kind())
            self._pause()

    def _strike_until(self, end: float) -> None:
        while self._continues(end):
            self._pause()
            self._one(self._kind(), SEVERAL_AT_ONCE)

    def _continues(self, end: float) -> bool:
        return time.monotonic() < end and not self.record.failures and not self._ground.ending.is_set()

    def _pause(self) -> None:
        with self._lock:
            gap_s = self._chance.random() * _GAP_S
        time.sleep(gap_s)

    def keep_daemon(self) -> None:
        """Start the daemon again if it has ended by itself, as a service manager does."""
        ground = self._ground
        if not ground.daemon.running and ground.claim(DAEMON):
            ground.print_line(f"the daemon has ended by itself; it is started again:\n{ground.daemon.tail()}")
            self.record.restarts += 1
            ground.daemon.start()
            ground.release((DAEMON,))

    def _keep_nodes(self) -> None:
        """Do the same for brokers and controllers."""
        ground = self._ground
        for side, cluster in ground.clusters.items():
            for node in cluster.options.node_ids:
                if not cluster.is_running(node) and ground.claim(name := part(side, node)):
                    ground.print_line(f"{name} has ended by itself; it is started again:\n{cluster.log_tail(node, 3)}")
                    self.record.node_restarts += 1
                    cluster.restart(node)
                    ground.release((name,))

    def _kind(self) -> Kind:
        with self._lock:
            return next(self._order)

    def _one(self, kind: Kind, together: str = "") -> None:
        """Strike once. Errors become failures of the chapter. `together` names the entry of the recoveries for this
        one. Empty: that of the kind, because no other fault lasts at the same time."""
        try:
            self._strike(kind, together)
        except Exception as error:  # noqa: BLE001 - it ends the chapter
            self.record.failures.append(f"{kind.name}: {type(error).__name__}: {error}")

    def _strike(self, kind: Kind, together: str) -> None:
        strike, ground = (OWN.get(kind.name) or STRIKES[kind.name]), self._ground
        with self._lock:
            hold_s, chance = self._chance.uniform(*kind.hold_s), Random(self._chance.randrange(1 << 32))
        deadline = time.monotonic() + _TRIES_S
        while (blow := strike(ground, chance)) is None:
            if time.monotonic() > deadline or ground.ending.is_set():
                return
            time.sleep(_LOOK_S)
        struck = time.time()
        with self._lock:
            self._number += 1
            number = self._number
            self.record.faults[kind.name] += 1
        results: dict[str, float | None] = {}
        lost: set[Lost] = set()
        begun = [
            threading.Thread(target=self._await, args=(side, struck + kind.settle_s, side, results, lost))
            for side in self._watches
        ]
        for thread in begun:
            thread.start()
        try:
            time.sleep(hold_s)
            blow.heal()
        finally:
            ground.release(blow.parts)
        healed = time.time()
        self._await("target", healed, "healed", results, lost)
        for thread in begun:
            thread.join()
        self._note(kind, number, blow.what, (struck, healed), results, lost, together)

    def _await(self, side: Side, since: float, what: str, results: dict[str, float | None], lost: set[Lost]) -> None:
        found, missing = self._watches[side].await_since(since, self._ended)
        results[what] = found
        if found is None:
            lost |= {(side, topic, partition) for topic, partition in missing}

    def _ended(self) -> bool:
        self.keep_daemon()
        return self._ground.ending.is_set()

    def _note(
        self,
        kind: Kind,
        number: int,
        what: str,
        times: tuple[float, float],
        results: Mapping[str, float | None],
        lost: set[Lost],
        together: str,
    ) -> None:
        struck, healed = times
        if late := [each for each in lost - unfed(lost) if each[0] == "target"]:
            names = ", ".join(f"{topic}-{partition} of the {side}" for side, topic, partition in sorted(late))
            self.record.failures.append(f"{what}: no recovery within {MOST_S:g} s: {names}")
            return
        if lost:
            names = ", ".join(f"{topic}-{partition}" for side, topic, partition in sorted(lost) if side == "source")
            self._ground.print_line(f"{number}: {what}: the source has not recovered within {MOST_S:g} s: {names}")
            self.record.unfed += 1
            return
        recovery = Recovery(
            (results["source"] or 0) - struck, (results["target"] or 0) - struck, (results["healed"] or 0) - healed
        )
        self.record.recoveries[together or kind.name].append(recovery)
        self._ground.print_line(
            f"{number}: {what} for {healed - struck:.1f} s{f' ({together})' if together else ''}; source after "
            f"{recovery.source_s:.1f} s, target {recovery.target_s:.1f} s, {recovery.healed_s:.1f} s after the end"
        )
