"""When a failover can begin or be cancelled."""

import pytest
from msgspec.structs import replace

from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.recovery import DoneStep, Recovery, RecoveryBegan, RecoveryFinished
from mirrord.ledger.folding.failovers import Recoveries
from mirrord.model.errors import ConfigError
from mirrord.supervision.rules.failover_orders import rule_cancel, rule_failover

ADA = Origin("ada@host", "fire", 1)
RUNS = Recovery(1, "planned", ("orders",), ADA)
ENDED = replace(RUNS, ended=True, finished_ms=9)
COPIED = ("orders", "bills")


def begun(recoveries: Recoveries, mode: str = "planned", topics: tuple[str, ...] = ()) -> RecoveryBegan | None:
    return rule_failover("eu-us", recoveries, COPIED, mode, topics, ADA).fact


def test_a_failover_begins_and_is_repeated() -> None:
    assert begun(()) == RecoveryBegan(1, "planned", (), ADA)
    assert begun((ENDED,), "source-lost", ("bills",)) == RecoveryBegan(2, "source-lost", ("bills",), ADA)
    assert begun((RUNS,), "planned", ("orders",)) is None
    assert begun((ENDED,), "planned", ("orders",)) is None
    assert begun((replace(ENDED, topics=()),), "source-lost") is None
    assert begun((replace(RUNS, finished_ms=9, cancelled=True),)) == RecoveryBegan(2, "planned", (), ADA)


@pytest.mark.parametrize(
    ("recoveries", "mode", "topics", "line"),
    [
        ((), "sudden", (), 'mode: found "sudden"; allowed: planned, source-lost'),
        ((), "planned", ("order",), 'topics: flow eu-us has copied no topic "order"; did you mean "orders"?'),
        ((ENDED,), "planned", ("bills", "orders"), 'topics: the copying of "orders" has already ended'),
        ((RUNS,), "source-lost", ("orders",), "failover 1 of flow eu-us is in progress (--planned, of orders)"),
        ((RUNS,), "planned", (), "is in progress"),
    ],
)
def test_impossible_failovers(recoveries: Recoveries, mode: str, topics: tuple[str, ...], line: str) -> None:
    with pytest.raises(ConfigError) as error:
        begun(recoveries, mode, topics)
    assert line in str(error.value)


def test_a_failover_is_cancelled_until_the_copying_has_ended() -> None:
    assert rule_cancel("eu-us", (RUNS,), 7) == RecoveryFinished(1, True, 7)
    with pytest.raises(ConfigError, match="no failover of flow eu-us is in progress"):
        rule_cancel("eu-us", (ENDED,), 7)
    with pytest.raises(ConfigError, match="has ended the copying: complete it"):
        rule_cancel("eu-us", (replace(RUNS, ended=True),), 7)
    with pytest.raises(ConfigError, match="is about to end the copying: complete it"):
        rule_cancel("eu-us", (replace(RUNS, mode="source-lost", steps=(DoneStep("settle", ""),)),), 7)


def test_a_topic_that_was_never_copied_is_an_error_even_after_the_end() -> None:
    with pytest.raises(ConfigError, match='has copied no topic "order"'):
        begun((replace(ENDED, topics=()),), "source-lost", ("order",))
