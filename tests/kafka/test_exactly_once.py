"""kill -9 of daemon and brokers on real clusters: every record arrives once, unaltered, in order."""

import pytest

from bench.campaign import Plan, Variant, run

KILLS = 3
RECORDS = 60_000


@pytest.mark.timeout(300)
@pytest.mark.parametrize("variant", ["fresh", "old", "creating", "two-daemons"])
def test_exactly_once_under_kill_9(variant: Variant, seed: int) -> None:
    plan = Plan(
        variant=variant,
        seed=seed,
        records=RECORDS,
        kills=KILLS,
        engine="process",
        minutes=4,
        lease_ttl_s=2,
        request_timeout_s=2,
    )
    outcome = run(plan, print)
    assert outcome.kills == plan.wanted
    assert outcome.comparison.is_exact, outcome.comparison.describe()
    assert outcome.comparison.records >= RECORDS
