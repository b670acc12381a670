"""Client quotas as operators read them."""

import pytest

from mirrord.model.quotas import ClientQuota


@pytest.mark.parametrize(
    ("quota", "line"),
    [
        (
            ClientQuota((("client-id", None), ("user", "ada")), "producer_byte_rate", 1_048_576.0),
            "producer_byte_rate=1048576 for user ada, client-id <default>",
        ),
        (
            ClientQuota((("ip", "10.0.0.1"),), "connection_creation_rate", 0.5),
            "connection_creation_rate=0.5 for ip 10.0.0.1",
        ),
        (
            ClientQuota((("user", None),), "request_percentage", float("inf")),
            "request_percentage=inf for user <default>",
        ),
    ],
)
def test_a_quota_is_shown_in_one_line(quota: ClientQuota, line: str) -> None:
    assert f"{quota}" == line
