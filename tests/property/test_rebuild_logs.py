"""A lost ledger, rebuilt from the bytes of both logs: transactions, holes, append times, other writers, filters.

The logs are random; what was copied is known (`tests.fixtures.copied_log`).
"""

import asyncio
import random
from collections.abc import Sequence
from typing import cast

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mirrord.audit import rebuild_scan
from mirrord.audit.rebuild_scan import LaneLook, LaneRebuilt, Rules
from mirrord.audit.rules.rebuild_facts import LaneNames, ReconstructedLane, facts
from mirrord.kafka.client.bulk_log_reader import LogReader
from mirrord.kafka.protocol.record import DecodedRecord
from mirrord.ledger.facts.core import Entry, FlowOpened, Holder, LeaseTaken
from mirrord.ledger.fold import fold
from mirrord.ledger.state import FlowState, LaneState
from mirrord.model.names import ClusterId, LaneKey, TopicId
from mirrord.topics.rules.topic_plan import PlannedLane
from tests.fixtures.byte_log import ByteLog
from tests.fixtures.copied_log import OWN, CopiedLog
from tests.fixtures.reference_log import Batch, LogByChance, Row, committed, decode, encode

SEEDS = st.integers(0, 2**32)
PLANNED = PlannedLane("orders", LaneKey(TopicId("s" * 22), 0, TopicId("t" * 22)), "eu.orders")
RULES = Rules(committed=True, begins_late=False)
RIVAL = (77, 0)


def stored(batches: Sequence[Batch]) -> list[Batch]:
    return decode(b"".join(map(encode, batches)))


def look(source: Sequence[Batch], target: Sequence[Batch], rules: Rules = RULES, start: int = 0) -> LaneRebuilt:
    """What both logs show; the source's begins at `start`."""
    ends = [batches[-1].last + 1 if batches else 0 for batches in (source, target)]
    logs = [ByteLog(source, ends[0], start), ByteLog(target, ends[1])]
    both = [cast(LogReader, log) for log in logs]
    return asyncio.run(LaneLook(both[0], both[1]).at(PLANNED, rules))


def unlike(batch: Batch) -> Batch:
    """No two of its records are equal, nor those of two batches."""
    if batch.is_control:
        return batch
    rows = [row._replace(value=b"%d" % row.offset) for row in batch.rows]
    return batch._replace(rows=tuple(rows), data=b"")


def folded(found: ReconstructedLane) -> LaneState:
    """The lane, according to the rebuilt ledger."""
    state = FlowState()
    named = LaneNames(
        lane=PLANNED.lane, source_topic="orders", target_topic="eu.orders", partition=0, producer_id=OWN[0],
        producer_epoch=0, policy="p", by="me",
    )  # fmt: skip
    entries = [
        Entry(0, 0, (FlowOpened("f", ClusterId("a"), ClusterId("b")),)),
        Entry(1, 0, (LeaseTaken(1, Holder("", 1, "", ""), 1),)),
        *(Entry(1, 0, (fact,)) for fact in facts(named, found)),
    ]
    for offset, entry in enumerate(entries):
        assert all(fold(state, entry, offset)), entry
    return state.lanes[PLANNED.lane]


def targets(batches: Sequence[Batch], producer: tuple[int, int] = OWN) -> list[int]:
    """The target offsets of the lane's records, by ordinal."""
    return [row.offset for batch in batches if batch.producer == producer for row in batch.rows]


def check(found: LaneRebuilt, sources: Sequence[int], there: Sequence[int]) -> LaneState:
    """Every ordinal is what it was, and the lane continues after the last one."""
    assert found.outcome == "rebuilt", found.why
    assert found.reconstructed is not None
    lane = folded(found.reconstructed)
    assert found.reconstructed.ordinal == found.reconstructed.until == len(sources) == len(there)
    assert (found.reconstructed.source_offset, found.reconstructed.target_offset) == (sources[-1] + 1, there[-1] + 1)
    assert [lane.source_runs.offset_of(ordinal) for ordinal in range(len(sources))] == sources
    assert [lane.target_runs.offset_of(ordinal) for ordinal in range(len(there))] == there
    assert found.producer == OWN
    return lane


@given(SEEDS, st.booleans())
@settings(max_examples=60, deadline=None)
def test_the_map_is_as_it_was(seed: int, foreign: bool) -> None:
    chance = random.Random(seed)
    source = stored(LogByChance(chance, 60).batches)
    made = CopiedLog(chance, source, foreign=foreign)
    assume(made.ordinal)
    target = stored(made.batches)
    found = look(source, target)
    check(found, made.sources, targets(target))
    assert found.reconstructed is not None
    assert found.reconstructed.left_out == 0
    # Batches without records, and records that no reader was to see.
    reasons = {"control" if batch.is_control else "aborted" for batch in source if batch not in committed(source)}
    assert {verdict.reason for verdict in found.reconstructed.verdicts} <= reasons | {"compacted"}


@given(SEEDS)
@settings(max_examples=40, deadline=None)
def test_what_a_filter_leaves_out_has_its_reason(seed: int) -> None:
    chance = random.Random(seed)
    source = stored(LogByChance(chance, 60).batches)

    def keeps(record: Row | DecodedRecord) -> bool:
        return record.key is not None

    made = CopiedLog(chance, source, keeps=keeps)
    assume(made.ordinal)
    found = look(source, target := stored(made.batches), msgspec.structs.replace(RULES, keeps=keeps))
    check(found, made.sources, targets(target))
    assert found.reconstructed is not None
    left_out = {row.offset for batch in committed(source) for row in batch.rows if not keeps(row)}
    filtered = {
        at for each in found.reconstructed.verdicts if each.reason == "filtered" for at in range(each.start, each.end)
    }
    passed = {at for at in left_out if made.sources[0] < at < made.sources[-1]}
    assert passed <= filtered <= left_out
    assert found.reconstructed.left_out == 0


@given(SEEDS, st.integers(1, 7), st.integers(1, 400), st.sampled_from((1, 5, 20_000)), st.booleans())
@settings(max_examples=120, deadline=None)
def test_a_filter_of_any_kind_is_no_reason_to_refuse(
    seed: int, keeps_of_8: int, size: int, together: int, expires: bool
) -> None:
    """The filter chooses single records by their content; limits are low, and the source may have lost its front."""
    chance = random.Random(seed)
    source = stored([unlike(batch) for batch in LogByChance(chance, size).batches])
    kept = {row.offset for batch in source for row in batch.rows if chance.randrange(8) < keeps_of_8}
    held = {(row.key, row.value, row.headers, row.time_ms) for b in source for row in b.rows if row.offset in kept}

    def keeps(record: Row | DecodedRecord) -> bool:
        return (record.key, record.value, tuple(record.headers), record.time_ms) in held

    made = CopiedLog(chance, source, keeps=keeps)
    assume(made.ordinal > 1)
    cut = chance.randrange(len(source)) if expires else 0
    left, target = source[cut:], stored(made.batches)
    start = left[0].base
    held_still = [at for at in made.sources if at >= start]
    assume(held_still)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rebuild_scan, "LOOK_AROUND", 2)
        patched.setattr(rebuild_scan, "RECORDS_AT_ONCE", together)
        patched.setattr(rebuild_scan, "MOST_RECORDS", 3)
        found = look(left, target, msgspec.structs.replace(RULES, keeps=keeps), start)
    assert found.outcome == "rebuilt", found.why
    assert found.reconstructed is not None
    lane = folded(found.reconstructed)
    first = len(made.sources) - len(held_still)
    there = targets(target)
    assert [lane.source_runs.offset_of(each) for each in range(first, len(made.sources))] == held_still
    assert [lane.target_runs.offset_of(each) for each in range(first, len(there))] == there[first:]
    assert (found.reconstructed.ordinal, found.reconstructed.source_offset) == (len(there), made.sources[-1] + 1)
    assert (found.reconstructed.expired, found.reconstructed.left_out) == (first, 0)


@given(SEEDS)
@settings(max_examples=40, deadline=None)
def test_after_what_another_lane_had_copied(seed: int) -> None:
    """The other lane wrote no more when this one began."""
    chance = random.Random(seed)
    source = stored(LogByChance(chance, 60).batches)
    every = committed(source)
    assume(len(every) > 1)
    at = chance.randrange(1, len(every))
    part = [[each for each in some if each.rows] for some in (every[:at], every[at:])]
    assume(all(part))
    plain = [[each._replace(attributes=each.attributes & ~16) for each in some] for some in part]
    former, made = CopiedLog(chance, plain[0]), CopiedLog(chance, plain[1])
    shift = former.end
    behind = [
        batch._replace(
            base=batch.base + shift,
            last=batch.last + shift,
            rows=tuple(row._replace(offset=row.offset + shift) for row in batch.rows),
        )
        for batch in made.batches
    ]
    target = stored([*(batch._replace(producer=RIVAL) for batch in former.batches), *behind])
    check(look(source, target), made.sources, targets(target))


@given(SEEDS)
@settings(max_examples=40, deadline=None)
def test_two_who_copied_at_the_same_time_are_refused(seed: int) -> None:
    chance = random.Random(seed)
    source = stored(LogByChance(chance, 60, holes=False).batches)
    target = CopiedLog(chance, source).batches
    assume(len(target) > 4)
    sequences = {OWN: 0, RIVAL: 0}
    mixed: list[Batch] = []
    for number, batch in enumerate(target):
        who = (OWN, RIVAL)[number % 2]
        mixed.append(batch._replace(producer=who, sequence=sequences[who]))
        sequences[who] += len(batch.rows)
    found = look(source, stored(mixed))
    assert found.outcome == "refused"
    assert found.reconstructed is None
    assert found.why


@pytest.mark.parametrize("is_empty", [True, False])
def test_what_is_transformed_is_refused_where_somebody_has_copied(is_empty: bool) -> None:
    chance = random.Random(1)
    source = stored(LogByChance(chance, 60).batches)
    target = [] if is_empty else stored(CopiedLog(chance, source).batches)
    found = look(source, target, msgspec.structs.replace(RULES, refused="its records are transformed"))
    assert (found.outcome, found.why.startswith("its records are transformed")) == (
        ("new", False) if is_empty else ("refused", True)
    )
