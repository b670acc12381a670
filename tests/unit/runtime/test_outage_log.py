"""The log lines about a cluster that cannot be reached."""

import pytest
from structlog.testing import capture_logs

from mirrord.runtime import outage_log
from mirrord.runtime.outage_log import OutageLog
from tests.fixtures.supervision import eventually


async def test_a_cluster_that_answers_now_and_then_is_one_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outage_log, "STEADY_S", 0.05)
    outages = OutageLog("eu")
    with capture_logs() as lines:
        outages.answered()
        for number in range(100):
            outages.failed(f"failure {number}")
            outages.answered()
        assert [(line["event"], line["error"]) for line in lines] == [("cluster_unreachable", "failure 0")]
        await eventually(lambda: len(lines) > 1)
        outages.failed("again")
        outages.close()
    assert [line["event"] for line in lines] == ["cluster_unreachable", "cluster_reachable", "cluster_unreachable"]
    assert {line["cluster"] for line in lines} == {"eu"}
