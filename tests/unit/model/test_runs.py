import random
import struct
import tracemalloc
import zlib
from array import array
from contextlib import suppress
from itertools import pairwise
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrord.model import runs as runs_module
from mirrord.model.run_codec import Packed, pack
from mirrord.model.run_memory import ALL_OF_IT, PIECE_RUNS
from mirrord.model.runs import Run, Runs
from tests.fixtures.attic import MemoryAttic, no_room, scarce


def runs(*pairs: tuple[int, int]) -> Runs:
    return Runs(Run(ordinal, offset) for ordinal, offset in pairs)


def test_a_run_that_only_continues_is_not_stored() -> None:
    assert runs((0, 10), (5, 15), (7, 20)) == runs((0, 10), (7, 20))


def test_a_newer_run_supersedes_those_at_and_after_its_ordinal() -> None:
    lane = runs((0, 10), (7, 20), (9, 30))
    lane.add(8, 25)
    assert lane == runs((0, 10), (7, 20), (8, 25))
    lane.add(7, 17)
    assert lane == runs((0, 10))


def test_offsets_of_ordinals() -> None:
    lane = runs((5, 10), (8, 20))
    assert [lane.offset_of(ordinal) for ordinal in (4, 5, 7, 8, 100)] == [None, 10, 12, 20, 112]
    assert lane.run_at(4) is None
    assert lane.run_at(7) == Run(5, 10)
    assert lane.after(4) == Run(5, 10)
    assert lane.after(5) == Run(8, 20)
    assert lane.after(8) is None
    assert lane.last == Run(8, 20)
    assert Runs().last is None


def test_the_pieces_between_two_ordinals() -> None:
    lane = runs((5, 10), (8, 20), (9, 40))
    assert list(lane.between(6, 10)) == [(6, 11, 2), (8, 20, 1), (9, 40, 2)]
    assert list(lane.between(0, 5)) == [(5, 10, 1)]
    assert list(lane.between(0, 4)) == []
    assert list(Runs().between(0, 4)) == []


def test_the_run_that_holds_the_ordinal_is_kept() -> None:
    lane = runs((0, 10), (7, 20), (9, 30))
    assert lane.forget_below(8) == 1
    assert lane == runs((7, 20), (9, 30))
    assert lane.forget_below(1000) == 1
    assert lane == runs((9, 30))
    assert lane.forget_below(0) == 0


def test_runs_are_found_by_position() -> None:
    lane = runs((0, 10), (7, 20), (9, 30))
    assert lane.at(1) == Run(7, 20)
    assert [lane.position(ordinal) for ordinal in (0, 1, 7, 8, 10)] == [0, 1, 1, 2, 3]
    with pytest.raises(IndexError):
        lane.at(3)


def columns(lane: Runs) -> bytes:
    """The first format of runs in snapshots."""
    numbers = [*(run.ordinal for run in lane), *(run.offset for run in lane)]
    return b"".join(number.to_bytes(8, "little") for number in numbers)


def long_lane(chance: random.Random, count: int) -> Runs:
    lane, ordinal, offset = Runs(), 0, 0
    for _ in range(count):
        lane.add(ordinal, offset)
        length = chance.choice((1, 2, 100, chance.randrange(1, 1 << 40)))
        ordinal, offset = ordinal + length, offset + length + chance.choice((1, 1, -1, 200, 1 << 33))
    return lane


def test_packed_runs_come_back(seed: int) -> None:
    lane = long_lane(random.Random(seed), 40_000)
    assert [piece.count for piece in lane.pieces] == [PIECE_RUNS] * 3
    twin = restored(lane)
    assert twin == lane
    assert list(twin.turns) == list(lane.turns)
    assert len(lane.turns) > 1_000
    assert Runs.restored([], b"") == Runs()


def test_a_run_of_transactions_is_packed_into_less_than_two_bytes(seed: int) -> None:
    chance, ordinal, offset = random.Random(seed), 0, 0
    lane = Runs()
    for _ in range(20_000):
        lane.add(ordinal, offset)
        length = chance.randrange(1, 200)
        ordinal, offset = ordinal + length, offset + length + 1
    packed = sum(len(piece.packed) for piece in lane.pieces) + len(lane.tail_packed())
    assert packed < 2 * len(lane)


def test_runs_of_the_older_form_are_read(seed: int) -> None:
    lane = long_lane(random.Random(seed), 20_000)
    twin = Runs()
    whole = columns(lane)
    half = len(whole) // 2
    for start in range(0, half, 8 * 8192):
        end = min(start + 8 * 8192, half)
        twin.extend_columns(whole[start:end] + whole[half + start : half + end])
    assert twin == lane
    assert list(twin.turns) == list(lane.turns)
    assert len(twin.pieces) == len(lane.pieces)


@pytest.mark.parametrize(
    "packed",
    [b"123", columns(runs((3, 1))), columns(runs((5, 1))), columns(runs((9, 1), (9, 2))) + b"\0"],
)
def test_columns_that_do_not_follow_are_refused(packed: bytes) -> None:
    lane = runs((5, 10))
    with pytest.raises(ValueError, match=r"runs"):
        lane.extend_columns(packed)
    assert lane == runs((5, 10))


def test_a_block_that_decompresses_to_more_than_its_runs_is_refused() -> None:
    """A pack of 64 KiB would otherwise take 64 MiB of memory."""
    packed = pack(array("q", [0, 5]), array("q", [10, 20]), ())
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    block = b"\0" + deflate.compress(bytes(64 << 20)) + deflate.flush()
    head = packed[:28] + struct.pack("<qqq", 0, 10, len(block))
    tracemalloc.start()
    with pytest.raises(ValueError, match="damaged packed runs: a block of another length"):
        Packed(head + block).unpack()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_damaged_packs_are_refused() -> None:
    packed = runs((0, 10), (7, 20), (9, 30)).tail_packed()
    for end in range(1, len(packed)):
        with pytest.raises(ValueError, match=r"packed runs"):
            Runs.restored([], packed[:end])
    with pytest.raises(ValueError, match=r"out of order"):
        Runs.restored([ALL_OF_IT.keep(packed)], packed)


@given(st.integers(0, 2**32))
def test_a_damaged_tail_is_refused_or_is_another_one(seed: int) -> None:
    chance = random.Random(seed)
    damaged = bytearray(long_lane(chance, chance.randrange(1, 300)).tail_packed())
    damaged[chance.randrange(len(damaged))] = chance.randrange(256)
    with suppress(ValueError):
        lane = Runs.restored([], bytes(damaged))
        assert list(lane) == sorted(lane)


def test_offsets_that_no_log_has_come_back() -> None:
    lane = runs((0, 1 << 62), (1 << 62, 0), ((1 << 63) - 9, (1 << 63) - 1), ((1 << 63) - 7, 0), ((1 << 63) - 5, 1))
    assert Runs.restored([], lane.tail_packed()) == lane


@given(st.integers(0, 2**32))
def test_packed_or_not_they_answer_the_same(seed: int) -> None:
    chance = random.Random(seed)
    plain: list[tuple[int, int]] = []
    attic = MemoryAttic(chance.choice((None, None, 2)))
    with scarce(), patch.object(runs_module, "REST_RUNS", 1):
        lane, ordinal, offset, begin = Runs(memory=no_room(attic)), 0, 0, 0
        for _ in range(chance.randrange(120)):
            ordinal += chance.randrange(1, 5)
            offset += chance.choice((6, 6, 6, 6, 6, -30))
            if chance.random() < 0.05:
                ordinal = max(chance.randrange(ordinal), begin)
            while plain and plain[-1][0] >= ordinal:
                plain.pop()
            lane.add(ordinal, offset)
            if not plain or offset - ordinal != plain[-1][1] - plain[-1][0]:
                plain.append((ordinal, offset))
            if chance.random() < 0.05:
                dropped = lane.forget_below(ordinal - chance.randrange(60))
                del plain[:dropped]
                begin = plain[0][0]
            if chance.random() < 0.05:
                lane = chance.choice((lane.copy(), restored(lane)))
            if chance.random() < 0.05:
                lane.rest()
        compare(lane, plain, chance)


def restored(lane: Runs) -> Runs:
    memory = no_room() if lane.pieces else ALL_OF_IT
    return Runs.restored([memory.keep(piece.packed) for piece in lane.pieces], lane.tail_packed(), memory)


def compare(lane: Runs, plain: list[tuple[int, int]], chance: random.Random) -> None:
    assert [(run.ordinal, run.offset) for run in lane] == plain
    assert len(lane) == len(plain)
    assert [lane.at(at) for at in range(len(plain))] == [Run(*each) for each in plain]
    following = list(pairwise(plain))
    turns = [here[0] for before, here in following if here[1] - here[0] < before[1] - before[0]]
    assert list(lane.turns) == turns
    end = plain[-1][0] + 5 if plain else 5
    for ordinal in range(end):
        below = [each for each in plain if each[0] <= ordinal]
        assert lane.run_at(ordinal) == (Run(*below[-1]) if below else None)
        assert lane.offset_of(ordinal) == (below[-1][1] + ordinal - below[-1][0] if below else None)
        assert lane.position(ordinal) == len([each for each in plain if each[0] < ordinal])
        assert lane.after(ordinal) == next((Run(*each) for each in plain if each[0] > ordinal), None)
    first = chance.randrange(end)
    last = chance.randrange(first, end)
    covered = [at for start, _, length in lane.between(first, last) for at in range(start, start + length)]
    assert covered == [at for at in range(first, last + 1) if plain and at >= plain[0][0]]
    for start, at, length in lane.between(first, last):
        assert [lane.offset_of(start + step) for step in range(length)] == list(range(at, at + length))
    assert list(lane.beginning_in(first, last)) == [Run(*each) for each in plain if first <= each[0] <= last]
    edges = sorted({0, len(plain), *(lane.position(turn) for turn in turns)})
    for low, high in pairwise(edges):
        lower, upper = sorted((chance.randrange(low, high), chance.randrange(low, high)))
        for offset in range(-50, 500, 7):
            below = [at for at in range(lower, upper + 1) if plain[at][1] <= offset]
            assert lane.floor(offset, lower, upper + 1) == (below[-1] if below else lower - 1)


def test_a_copy_is_independent() -> None:
    lane = runs((0, 10))
    twin = lane.copy()
    twin.add(5, 20)
    assert lane == runs((0, 10))
    with pytest.raises(TypeError):
        hash(lane)


PACKED_THEN = (
    "2c01000003000000010000005db0000000000000b3b20000000000000000000000000000c020000000000000808100000000000000000000"
    "00000000c02100000000000080830000000000008500000000000000450100000000000089010000000000004c4f00000000000000636266"
    "616563e7e0e4e2e6e1e5e3171014121611151397909492969195935750545256515553d7d0d4d2d6d1d5d33730343236313533b7b0b4b2b6"
    "b1b5b37770747276717573f7f0f4f2f6f1f5f30f080c0a0e090d0b8f888c8a8e898d8b4f484c4a4e494d4bcfc8cccacec9cdcb2f282c2a2e"
    "292d2bafa8acaaaea9adab6f601a58000005cdcd053a1e000000d0c7b19cc29974c7744e4f4e77db267e6c989866babbf3163edf3bc00b13"
    "2e42a428d162c48a132f41a224c952a4fa224dba0c99b264cb912b4fbe0285be2a52ac44a932e52a7c53a94ab51ab5ea7c57af41a326cd5a"
    "b46ad3ae43a72edd7af4ead36fc0a0213ffcf4cbb011a3c6048c9b30e9b73fa64c9bf1d7ac39f316fcb368c9b215abd6acdbb0e9bf2ddb76"
    "ecdab3efc0a123c74e9c3a73eec2a52bd76edcba73efc1a327cf5ebc7a2328d86712521f08fdc8ef1d018dc1091681500000c0371fa1ecb4"
    "5022a4c8fdcfe70acd0413533391b985a55862656d636b67efe0e82495c915ce2e4a95abdacd5de3e1e9a5f5d6e97d7c0d7ec2787f"
)
"""What the state topics of the ledger's version 5 hold must remain readable."""


def test_runs_that_were_packed_long_ago_are_read() -> None:
    lane = Runs()
    for number in range(300):
        ordinal = number * (number + 3) // 2
        lane.add(ordinal, ordinal + 2 * number if number != 200 else 20)
    assert Runs.restored([], bytes.fromhex(PACKED_THEN)) == lane


def test_nothing_is_near_across_a_turn() -> None:
    runs = Runs([Run(0, 0), Run(13, 10), Run(17, 3)])
    assert [runs.near(ordinal) for ordinal in (0, 12, 13, 16, 17, 20)] == [0, 0, 1, 1, 2, 2]
