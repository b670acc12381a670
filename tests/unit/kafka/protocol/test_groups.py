"""Requests about groups and the records of their coordinators, byte for byte as Kafka's own classes write them
(see tests/golden/wire/GroupVectors.java).
"""

import json
from pathlib import Path

import pytest

from mirrord.kafka.protocol import consumer_offsets, groups
from mirrord.kafka.protocol.api_versions import (
    DELETE_GROUPS,
    DRILL_APIS,
    FIND_COORDINATOR,
    GROUP_APIS,
    LIST_GROUPS,
    OFFSET_FETCH,
    choose,
)
from mirrord.kafka.protocol.consumer_offsets import OffsetKey, OffsetValue
from mirrord.kafka.protocol.errors import UnknownLayout, WireError
from mirrord.kafka.protocol.groups import CommittedOffset, Coordinator, GroupOffsets, ListedGroup
from mirrord.kafka.protocol.primitives import Reader, uuid_text

VECTORS: dict[str, str] = json.loads((Path(__file__).parents[3] / "golden/wire/groups.json").read_text())
KAFKA_2_8 = {8: (0, 8), 9: (0, 7), 10: (0, 3), 16: (0, 4)}
FOUND = CommittedOffset(1 << 40, 7, "m")


def golden(name: str) -> bytes:
    return bytes.fromhex(VECTORS[name])


def answer(name: str, version: int) -> Reader:
    """The golden answer in the middle of a larger buffer."""
    data = golden(f"{name} {version}")
    return Reader(bytearray(b"before") + data + b"behind", 6, 6 + len(data))


def test_every_version_that_we_speak_has_its_vectors() -> None:
    spoken = {
        f"{api.name}Response {version}"
        for api in (*GROUP_APIS, *DRILL_APIS)
        for version in range(api.least, api.greatest + 1)
    }
    assert spoken == {name for name in VECTORS if "Response" in name}


def test_the_oldest_kafka_will_do() -> None:
    assert [choose(api, KAFKA_2_8) for api in GROUP_APIS] == [8, 7, 3, 4]


@pytest.mark.parametrize("version", range(FIND_COORDINATOR.least, FIND_COORDINATOR.greatest + 1))
def test_find_coordinator(version: int) -> None:
    wanted = ["billing", "audit"] if version >= groups.COORDINATORS_AT_ONCE else ["billing"]
    assert groups.encode_find(version, wanted) == golden(f"FindCoordinatorRequest {version}")
    found = groups.decode_find(version, answer("FindCoordinatorResponse", version), wanted)
    assert found["billing"] == Coordinator(0, 2, "two", 9092)
    if version >= groups.COORDINATORS_AT_ONCE:
        assert found["audit"] == Coordinator(15, -1, "", -1)


@pytest.mark.parametrize("version", range(LIST_GROUPS.least, LIST_GROUPS.greatest + 1))
def test_list_groups(version: int) -> None:
    assert groups.encode_list(version) == golden(f"ListGroupsRequest {version}")
    error, found = groups.decode_list(version, answer("ListGroupsResponse", version))
    kinds = ("Classic", "Consumer") if version >= groups.TYPES_REPORTED else ("", "")
    assert error == (15 if version >= groups.TYPES_REPORTED else 0)
    assert found == [
        ListedGroup("billing", "consumer", "Stable", kinds[0]),
        ListedGroup("audit", "", "Empty", kinds[1]),
    ]


@pytest.mark.parametrize("version", range(OFFSET_FETCH.least, OFFSET_FETCH.greatest + 1))
def test_offset_fetch(version: int) -> None:
    wanted = ["billing", "audit"] if version >= groups.OFFSETS_AT_ONCE else ["billing"]
    assert groups.encode_fetch(version, wanted) == golden(f"OffsetFetchRequest {version}")
    found = groups.decode_fetch(version, answer("OffsetFetchResponse", version), wanted)
    assert found["billing"] == GroupOffsets(0, {("orders", 0): FOUND})
    if version >= groups.OFFSETS_AT_ONCE:
        assert found["audit"] == GroupOffsets(30, {})


def test_offset_commit() -> None:
    offsets = {("eu.orders", 0): CommittedOffset(1 << 40, -1, "m"), ("eu.orders", 3): CommittedOffset(0, -1, "")}
    assert groups.encode_commit("billing", offsets) == golden("OffsetCommitRequest 8")
    assert groups.decode_commit(answer("OffsetCommitResponse", 8)) == {("eu.orders", 0): 0, ("eu.orders", 3): 25}


def test_keys() -> None:
    for kind in (0, 1):
        assert consumer_offsets.decode_key(golden(f"key of kind {kind}")) == OffsetKey("billing", "orders", 3)
    for kind in (2, 3, 5, 17):
        assert consumer_offsets.decode_key(golden(f"key of kind {kind}")) == kind
    assert consumer_offsets.decode_key(b"\x00\x63and whatever comes") == 99
    for broken in (b"", b"\x00", golden("key of kind 1")[:-1], golden("key of kind 1") + b"x"):
        with pytest.raises(WireError):
            consumer_offsets.decode_key(broken)


@pytest.mark.parametrize("version", range(5))
def test_values(version: int) -> None:
    found = consumer_offsets.decode_value(golden(f"OffsetCommitValue {version}"))
    topic_id = uuid_text(bytes(range(1, 17))) if version >= 4 else None
    assert found == OffsetValue(1 << 40, 7 if version >= 3 else -1, "m", 1_700_000_000_000, topic_id)


def test_values_without_a_topic_id_and_of_the_oldest_kind() -> None:
    decoded = consumer_offsets.decode_value(golden("OffsetCommitValue without a topic id 4"))
    assert decoded == OffsetValue(1 << 40, 7, "m", 1_700_000_000_000)
    oldest = consumer_offsets.decode_value(golden("LegacyOffsetCommitValue 0"))
    assert oldest == OffsetValue(1 << 40, -1, "m", 1_700_000_000_000)


def test_a_value_that_is_too_new_is_reported() -> None:
    with pytest.raises(UnknownLayout, match="a commit of version 5"):
        consumer_offsets.decode_value(b"\x00\x05" + golden("OffsetCommitValue 4")[2:])


def test_the_deletion_of_a_group() -> None:
    assert choose(DELETE_GROUPS, {42: (0, 2)}) == 2
    assert groups.encode_delete("billing") == golden("DeleteGroupsRequest 2")
    assert groups.decode_delete(answer("DeleteGroupsResponse", 2)) == 69
