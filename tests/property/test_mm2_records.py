"""Every record of MirrorMaker 2 that is encoded decodes to the same; other bytes are refused with one error."""

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from mirrord.kafka.protocol.errors import WireError
from mirrord.kafka.protocol.mm2_records import Checkpoint, Heartbeat, OffsetSync

NAMES = st.text(st.characters(codec="utf-8"), max_size=300)
PARTITIONS = st.integers(-(1 << 31), (1 << 31) - 1)
OFFSETS = st.integers(-(1 << 63), (1 << 63) - 1)
RECORDS = st.one_of(
    st.builds(Heartbeat, NAMES, NAMES, OFFSETS),
    st.builds(Checkpoint, NAMES, NAMES, PARTITIONS, OFFSETS, OFFSETS, NAMES),
    st.builds(OffsetSync, NAMES, PARTITIONS, OFFSETS, OFFSETS),
)
BYTES = st.none() | st.binary(max_size=60)


@given(RECORDS)
def test_round_trip(record: Heartbeat | Checkpoint | OffsetSync) -> None:
    assert type(record).decode(record.key, record.value) == record


@given(BYTES, BYTES, st.sampled_from((Heartbeat, Checkpoint, OffsetSync)))
def test_other_bytes_are_refused_or_read(
    key: bytes | None, value: bytes | None, kind: type[Heartbeat | Checkpoint | OffsetSync]
) -> None:
    with suppress(WireError):
        kind.decode(key, value)
