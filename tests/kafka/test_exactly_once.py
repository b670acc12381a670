"""kill -9 of daemon and brokers on real clusters: every record arrives once, unaltered, in order."""

from collections.abc import Generator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import pytest

from bench.faults.campaign import VARIANTS, Outcome, Plan, Variant, run

KILLS = 3
RECORDS = 60_000
AT_ONCE = 2
"""Campaigns side by side, each on its own brokers: most of a campaign is waiting for what was killed."""


def plan_of(variant: Variant, seed: int) -> Plan:
    return Plan(
        variant=variant,
        seed=seed,
        records=RECORDS,
        kills=KILLS,
        engine="process",
        minutes=8,
        lease_ttl_s=2,
        request_timeout_s=2,
    )


@pytest.fixture(scope="module")
def campaigns(request: pytest.FixtureRequest, seed: int) -> Generator[Mapping[str, Future[Outcome]]]:
    """The selected tests, in their order; their campaigns begin now."""
    chosen = [name for item in request.session.items if (name := variant_of(item))]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        begun = {
            variant: pool.submit(run, plan_of(variant, seed), partial(print, f"{variant}:"))
            for variant in VARIANTS
            if variant in chosen
        }
        yield begun
        for campaign in begun.values():
            campaign.cancel()


def variant_of(item: pytest.Item) -> str:
    """Empty for a test that is not one of these."""
    if not isinstance(item, pytest.Function) or item.function is not test_exactly_once_under_kill_9:
        return ""
    return str(item.callspec.params["variant"])


@pytest.mark.timeout(900)
@pytest.mark.parametrize("variant", VARIANTS)
def test_exactly_once_under_kill_9(variant: Variant, seed: int, campaigns: Mapping[str, Future[Outcome]]) -> None:
    outcome = campaigns[variant].result()
    assert outcome.kills == plan_of(variant, seed).wanted
    assert outcome.comparison.is_exact, outcome.comparison.describe()
    assert outcome.comparison.records >= RECORDS
