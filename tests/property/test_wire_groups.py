"""Any bytes about groups, or in `__consumer_offsets`, give a value or a WireError, and parsing ends."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrord.kafka.protocol import consumer_offsets, groups
from mirrord.kafka.protocol.errors import WireError
from mirrord.kafka.protocol.primitives import Reader

VECTORS: dict[str, str] = json.loads((Path(__file__).parents[1] / "golden/wire/groups.json").read_text())
ONE = ["billing"]

PARSERS: dict[str, Callable[[Reader], object]] = {
    "FindCoordinatorResponse 3": lambda reader: groups.decode_find(3, reader, ONE),
    "FindCoordinatorResponse 4": lambda reader: groups.decode_find(4, reader, ONE),
    "ListGroupsResponse 4": lambda reader: groups.decode_list(4, reader),
    "ListGroupsResponse 5": lambda reader: groups.decode_list(5, reader),
    "OffsetFetchResponse 7": lambda reader: groups.decode_fetch(7, reader, ONE),
    "OffsetFetchResponse 8": lambda reader: groups.decode_fetch(8, reader, ONE),
    "OffsetCommitResponse 8": groups.decode_commit,
}
RECORDS: dict[str, Callable[[bytes], object]] = {
    name: consumer_offsets.decode_key if name.startswith("key") else consumer_offsets.decode_value
    for name in VECTORS
    if "Re" not in name
}


def survives(parse: Callable[[Reader], object], data: bytes) -> None:
    reader = Reader(data)
    try:
        parse(reader)
    except WireError:
        return
    assert reader.position == len(data)


@pytest.mark.parametrize("name", PARSERS)
@given(data=st.binary(max_size=300))
def test_any_answer(name: str, data: bytes) -> None:
    survives(PARSERS[name], data)


@pytest.mark.parametrize("name", PARSERS)
@given(st.data())
def test_answers_with_damage(name: str, data: st.DataObject) -> None:
    good = bytes.fromhex(VECTORS[name])
    start, cut = data.draw(st.integers(0, len(good))), data.draw(st.integers(0, 8))
    survives(PARSERS[name], good[:start] + data.draw(st.binary(max_size=8)) + good[start + cut :])


@pytest.mark.parametrize("name", PARSERS)
def test_answers_that_end_anywhere(name: str) -> None:
    good = bytes.fromhex(VECTORS[name])
    for end in range(len(good)):
        with pytest.raises(WireError):
            PARSERS[name](Reader(good, 0, end))


@pytest.mark.parametrize("parse", [consumer_offsets.decode_key, consumer_offsets.decode_value])
@given(data=st.binary(max_size=100), head=st.sampled_from([b"", b"\x00\x00", b"\x00\x01", b"\x00\x03", b"\x00\x04"]))
def test_any_record(parse: Callable[[bytes], object], data: bytes, head: bytes) -> None:
    with contextlib.suppress(WireError):
        parse(head + data)


@pytest.mark.parametrize("name", RECORDS)
@given(st.data())
def test_records_with_damage(name: str, data: st.DataObject) -> None:
    good = bytes.fromhex(VECTORS[name])
    start, cut = data.draw(st.integers(0, len(good))), data.draw(st.integers(0, 8))
    with contextlib.suppress(WireError):
        RECORDS[name](good[:start] + data.draw(st.binary(max_size=8)) + good[start + cut :])


@pytest.mark.parametrize(
    "name", [name for name in RECORDS if name in {"key of kind 0", "key of kind 1"} or "Value" in name]
)
def test_offsets_that_end_anywhere(name: str) -> None:
    good = bytes.fromhex(VECTORS[name])
    for end in range(len(good)):
        with pytest.raises(WireError):
            RECORDS[name](good[:end])
