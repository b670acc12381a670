"""Assesses how ready the flows of a daemon are for the loss of their source clusters: regularly those that it runs, and
all of them when a client asks.

An assessment sends requests to the target cluster. However many clients ask, a flow is assessed at most every `KEPT_S`
seconds; all other answers derive from the latest assessment.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import structlog

from mirrord.config.schema import Config, FlowConfig
from mirrord.daemon.cached_answer import SharedAnswers, TooManyWait
from mirrord.ledger.standing_orders import LONGEST_NAME
from mirrord.ledger.state import FlowState
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.model.errors import ConfigError
from mirrord.model.readiness import FlowReadiness, ReadinessReport, ReadinessStatus
from mirrord.model.shown_text import printable
from mirrord.model.status import FlowStatus
from mirrord.model.version import version
from mirrord.recovery.flow_readiness import FlowAssessment, Live, ReadinessOptions, assess
from mirrord.recovery.rules.options import principal, rpo_seconds
from mirrord.recovery.target_survey import TargetClients
from mirrord.recovery.turns import Turns

PERIOD_S = 60.0
"""Interval in seconds between two assessments of a flow that is ready."""
KEPT_S = 10.0
"""Minimum interval in seconds between two assessments of a flow. A flow that is not ready is assessed at this interval,
so that the status soon shows when it is ready again."""
LOOK_S = 1.0
MOST_SHARE, ASKED_SHARE = 0.02, 0.05
"""Maximum share of a core that the assessments of one flow may use: those that the daemon begins, and those that
clients ask for. With thousands of partitions, they are rarer."""
PARTITION_S = 0.00006
"""About how much CPU time, in seconds, the requests to the target about one partition take."""
AT_ONCE = 4
"""Maximum number of flows that are assessed at the same time."""
MOST_QUESTIONS = 8
"""Maximum number of different questions that are answered from the same assessments."""
MOST_PRINCIPALS = 10
OPTIONS = ("flow", "rpo", "as")
NO_OPTIONS = ReadinessOptions()

log = structlog.get_logger()


class FlowLook(NamedTuple):
    """What the daemon knows about one of its flows."""

    flow: FlowConfig
    runs: bool
    """Whether this daemon runs the flow."""
    status: Callable[[], FlowStatus]
    ledger: Callable[[], FlowState | None]
    """Returns the state of the ledger, or None if it has not been read."""


class ReadinessQuestion(NamedTuple):
    """What a client wants to know."""

    flow: str | None = None
    """Name of the flow, or None for all flows of the daemon."""
    options: ReadinessOptions = NO_OPTIONS


class _Kept(NamedTuple):
    runs: bool
    """Whether the daemon ran the flow then."""
    assessment: FlowAssessment
    summary: ReadinessStatus
    at_s: float
    spent_s: float

    def until_s(self, least_s: float, share: float) -> float:
        """Return until when the flow need not be assessed again, if `least_s` is the shortest interval."""
        return self.at_s + max(least_s, self.spent_s / share)


def question_of(query: Iterable[tuple[str, str]]) -> ReadinessQuestion:
    """Return the question in the parameters of a request. Raises ConfigError with a line for the client."""
    given: dict[str, list[str]] = {}
    for name, value in query:
        if name not in OPTIONS:
            raise ConfigError(f'found the parameter "{printable(name, LONGEST_NAME)}"; allowed: {", ".join(OPTIONS)}')
        given.setdefault(name, []).append(printable(value, LONGEST_NAME))
    for name in ("flow", "rpo"):
        if len(given.get(name, ())) > 1:
            raise ConfigError(f"{name}: found {len(given[name])} values; allowed: one")
    principals = given.get("as", [])
    if len(principals) > MOST_PRINCIPALS:
        raise ConfigError(f"as: found {len(principals)} principals; allowed: at most {MOST_PRINCIPALS}")
    rpo_s = rpo_seconds(given["rpo"][0], "rpo") if "rpo" in given else None
    options = ReadinessOptions(rpo_s, tuple(principal(each, "as") for each in principals))
    return ReadinessQuestion(given["flow"][0] if "flow" in given else None, options)


class ReadinessKeeper:
    """Keeps the latest assessments of the flows of one daemon."""

    def __init__(
        self, look: Callable[[], Mapping[str, FlowLook]], access: ClusterAccess, config: Callable[[], Config]
    ) -> None:
        """`look` returns the current flows by name."""
        self._look = look
        self._access = access
        self._config = config
        self._clock = access.clock
        self._kept: dict[str, _Kept] = {}
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._locks: dict[str, asyncio.Lock] = {}
        self._refreshes = SharedAnswers[None]()
        self._documents: dict[tuple[tuple[str, ...], ReadinessOptions], asyncio.Task[bytes]] = {}
        """The answers that derive from the current assessments."""

    async def run(self) -> None:
        """Assess the flows that this daemon runs again and again, until cancelled."""
        while True:
            looks = self._look()
            for gone in self._kept.keys() - looks.keys():
                self._kept.pop(gone)
                self._locks.pop(gone, None)
            due = [each for each in looks.values() if each.runs and self._is_due(each.flow.name)]
            for result in await asyncio.gather(*(self._refresh(each) for each in due), return_exceptions=True):
                if isinstance(result, Exception):
                    log.error("readiness_failed", exc_info=result)
            await self._clock.sleep(LOOK_S)

    def summary(self, flow: str) -> ReadinessStatus | None:
        """Return the result of the latest assessment of a flow that this daemon runs, or None if there was none yet."""
        kept = self._kept.get(flow)
        return kept.summary if kept is not None and kept.runs else None

    async def report(self, question: ReadinessQuestion) -> bytes:
        """Return the answer to a question as a JSON document. Raises ConfigError if there is no such flow, and
        TooManyWait."""
        looks = self._look()
        if question.flow is not None and question.flow not in looks:
            self._config().flow(question.flow)
            raise ConfigError(f'the flow "{question.flow}" is only just being added or removed')
        names = tuple(looks) if question.flow is None else (question.flow,)

        async def refresh() -> None:
            await asyncio.gather(*(self._refresh(looks[name]) for name in names))

        if not all(self._is_fresh(looks[name]) for name in names):
            await self._refreshes.get(names, refresh)
        return await self._document(names, question.options)

    def _is_due(self, flow: str) -> bool:
        """Return whether the daemon should assess the flow again without being asked."""
        kept = self._kept.get(flow)
        if kept is None or not kept.runs:
            return True
        return self._clock.monotonic() >= kept.until_s(PERIOD_S if kept.summary.ready else KEPT_S, MOST_SHARE)

    def _is_fresh(self, look: FlowLook) -> bool:
        """Return whether clients get the latest assessment of the flow. If the daemon has begun or ceased to run the
        flow, it is assessed again."""
        kept = self._kept.get(look.flow.name)
        if kept is None or kept.runs != look.runs:
            return False
        return self._clock.monotonic() < kept.until_s(KEPT_S, ASKED_SHARE)

    async def _refresh(self, look: FlowLook) -> None:
        """Assess a flow, unless this has just been done."""
        name = look.flow.name
        async with self._locks.setdefault(name, asyncio.Lock()), self._turn:
            if self._is_fresh(look):
                return
            turns = Turns()
            assessment = await self._assessed(look, turns)
            summary = ReadinessStatus.of(assessment.answer(NO_OPTIONS))
            spent_s = turns.spent_s + len(assessment.found.partitions) * PARTITION_S
            self._kept[name] = _Kept(look.runs, assessment, summary, self._clock.monotonic(), spent_s)
            self._documents.clear()

    async def _assessed(self, look: FlowLook, turns: Turns) -> FlowAssessment:
        flow, status, state, now_ms = look.flow, look.status(), look.ledger(), self._clock.wall_ms()
        if status.state not in {"running", "standby", "ended"}:
            why = f"the flow is {status.state} in this daemon{f': {status.note}' if status.note else ''}"
            return _unknown(flow, why, now_ms)
        if state is None:
            return _unknown(flow, "the ledger has not been read yet", now_ms)
        live = Live(status.lanes) if status.state == "running" else Live()
        topics, upkeep = self._access.admin(flow.target), self._access.upkeep(flow.target)
        try:
            clients = TargetClients(self._config().clusters[flow.target], topics, upkeep, reads_acls=True)
            return await assess(flow, state, live, clients, now_ms, turns)
        finally:
            await turns.outside(asyncio.gather(topics.close(), upkeep.close()))

    async def _document(self, names: tuple[str, ...], options: ReadinessOptions) -> bytes:
        key = (names, options)
        if key not in self._documents:
            if len(self._documents) >= MOST_QUESTIONS:
                raise TooManyWait(f"{MOST_QUESTIONS} other questions have just been asked; try again in {KEPT_S:g} s")
            found = [self._kept[name].assessment for name in names if name in self._kept]
            # In a thread, because thousands of partitions take a while. Assessments do not change.
            self._documents[key] = asyncio.create_task(asyncio.to_thread(_encoded, found, options))
        return await asyncio.shield(self._documents[key])


def _encoded(assessments: Sequence[FlowAssessment], options: ReadinessOptions) -> bytes:
    flows = tuple(each.answer(options) for each in assessments)
    report = ReadinessReport(version=version(), ready=all(flow.ready for flow in flows), flows=flows)
    return msgspec.json.encode(report)


def _unknown(flow: FlowConfig, why: str, now_ms: int) -> FlowAssessment:
    found = FlowReadiness(
        flow=flow.name,
        source=flow.source,
        target=flow.target,
        ready=False,
        at_ms=now_ms,
        grounds="ledger",
        blockers=(why,),
    )
    return FlowAssessment(found, 0.0, why, ())
