"""The pure parts of the campaign's variant `storm`: the table of kinds, the requests of the bench, and the verdict."""

import struct
from random import Random
from typing import Any

import pytest

from bench.faults.storm import leaders, network, watch
from bench.faults.storm.clocks import Clock
from bench.faults.storm.command import sizes
from bench.faults.storm.ground import Side
from bench.faults.storm.judging import Account, Cleaned, Named, account, last_of_keys, named_in
from bench.faults.storm.kinds import FLAVORS, KINDS, NEED_OF_FLAVOR, Order, flavors, playable, unavailable
from bench.faults.storm.load import NUMBERED, STREAMS
from bench.faults.storm.numbered import Numbered
from bench.faults.storm.own_strikes import OWN
from bench.faults.storm.strikes import STRIKES
from bench.faults.storm.striking import unfed
from bench.report import storms


def test_every_kind_has_a_strike_and_no_strike_is_left_over() -> None:
    names = [kind.name for kind in KINDS]
    assert len(set(names)) == len(names)
    assert set(names) == STRIKES.keys() | OWN.keys()
    assert not STRIKES.keys() & OWN.keys()


def test_what_is_missing_rules_out_the_kinds_that_need_it() -> None:
    missing: Any = {"namespaces": "not root", "Ray": "another engine"}
    reasons = unavailable(KINDS, missing)
    assert reasons["source-cut"] == "not root"
    assert reasons["head-kill"] == "another engine"
    assert "source-kill" not in reasons
    assert flavors(missing) == ["plain", "clocks", "upgrade"]
    played = {kind.name for kind in playable(KINDS, missing, "clocks")}
    assert not played & reasons.keys()
    assert {"source-clock", "source-kill"} <= played
    assert "source-upgrade" not in played
    assert unavailable(KINDS, {}) == {}
    assert flavors({}) == list(FLAVORS)


def test_a_flavor_needs_what_its_kinds_need() -> None:
    for kind in KINDS:
        if kind.flavor is not None:
            assert NEED_OF_FLAVOR[kind.flavor] in kind.needs


def test_each_round_has_every_kind_and_those_of_the_flavor_twice() -> None:
    kinds = playable(KINDS, {}, "disks")
    order = Order(kinds, Random(1))
    length = len(kinds) + sum(kind.flavor is not None for kind in kinds)
    for _ in range(2):
        played = [next(order).name for _ in range(length)]
        assert {name: played.count(name) for name in played} == {kind.name: 2 if kind.flavor else 1 for kind in kinds}


def test_every_flavor_gets_both_sizes() -> None:
    seen = {(FLAVORS[number % len(FLAVORS)], sizes(number)["source"]) for number in range(2 * len(FLAVORS))}
    assert seen == {(flavor, size) for flavor in FLAVORS for size in (2, 3)}
    assert all(sum(sizes(number).values()) == 5 for number in range(8))


def test_the_load_is_complete() -> None:
    assert sum(stream.share for stream in STREAMS) == pytest.approx(1.0, abs=0.01)
    assert any(stream.topic.transactional for stream in STREAMS)
    assert any(stream.age_ms for stream in STREAMS)
    assert len({stream.topic.name for stream in STREAMS} | {topic.name for topic in NUMBERED}) == 11


def test_a_watch_asks_for_the_first_record_since_a_time() -> None:
    message = watch.request({("a", 0): 5, ("a", 2): 6, ("bc", 1): 7})
    assert struct.unpack_from(">i", message)[0] == len(message) - 4
    assert struct.unpack_from(">hh", message, 4) == (2, 2)
    assert message.endswith(struct.pack(">h2siiq", 2, b"bc", 1, 1, 7))


def test_a_partition_has_recovered_if_its_leader_finds_a_record() -> None:
    partitions = [(0, 0, 17), (1, 6, -1), (2, 0, -1)]  # found; another leader; no such record
    answer = struct.pack(">iiih1si", 0, 0, 1, 1, b"a", len(partitions))
    for partition, error, offset in partitions:
        answer += struct.pack(">ihqq", partition, error, 1, offset)
    assert watch.answered(answer) == {("a", 0)}


def test_a_copy_cannot_recover_before_its_source() -> None:
    """A transaction may stay open for long after its coordinator was cut off."""
    lost: set[tuple[Side, str, int]] = {("source", "t", 0), ("target", "eu.t", 0), ("target", "eu.t", 1)}
    assert unfed(lost) == {("target", "eu.t", 0)}


def test_a_reassignment_in_the_format_of_kip_455() -> None:
    message = leaders.request({("t", 3): [2, 1]})
    assert struct.unpack_from(">i", message)[0] == len(message) - 4
    assert struct.unpack_from(">hh", message, 4) == (45, 0)
    partition = struct.pack(">i", 3) + b"\x03" + struct.pack(">ii", 2, 1) + b"\0"
    assert message.endswith(b"\x02" + b"\x02t" + b"\x02" + partition + b"\0" + b"\0")
    assert leaders.error_of(struct.pack(">ibihb", 0, 0, 0, 41, 0)) == 41


def test_replicas_rotate_and_leave() -> None:
    replicas = {("a", 0): [1, 2, 3], ("a", 1): [2]}
    assert leaders.rotated(replicas) == {("a", 0): [2, 3, 1], ("a", 1): [2]}
    assert leaders.without(replicas, 2) == {("a", 0): [1, 3]}


def test_a_cut_has_a_filter_for_each_port_and_direction() -> None:
    assert [line.split("match ip ")[1] for line in network.filters(7, [1, 2], [3])] == [
        "dport 1 0xffff classid 1:666",
        "dport 2 0xffff classid 1:666",
        "sport 3 0xffff classid 1:666",
    ]
    assert all("prio 7 " in line for line in network.filters(7, [1], [3]))


def test_a_clock_steps_and_is_mended(tmp_path: Any) -> None:
    file = tmp_path / "clock"
    clock = Clock(tmp_path / "library.so", file)
    shown = [file.read_text().strip()]
    for step in (lambda: clock.step(ahead=True), lambda: clock.step(ahead=False), clock.mend):
        step()
        shown.append(file.read_text().strip())
    assert shown == ["+0", "+3600", "-3600", "+0"]
    assert clock.environment["FAKETIME_DONT_FAKE_MONOTONIC"] == "1"


# Numbers 0 to 5 are at the offsets 10, 11, 12, 13, 15, 16.
ACKNOWLEDGED = ([0, 1, 2, 3, 4, 5], [10, 11, 12, 13, 15, 16])


def test_everything_arrived() -> None:
    assert arrived(ACKNOWLEDGED, 6, [0, 1, 2, 3, 4, 5], []) == Account(copied=6)


def test_what_the_ledger_names_may_be_missing_and_nothing_else() -> None:
    named = [Named(10, 12, "expired"), Named(14, 15, "compacted")]
    assert arrived(ACKNOWLEDGED, 6, [2, 3, 4, 5], named) == Account(copied=4, named=2)
    assert arrived(ACKNOWLEDGED, 6, [2, 3, 5], named) == Account(copied=3, named=2, missing=1)


def test_the_ledger_may_not_name_what_was_copied() -> None:
    assert arrived(ACKNOWLEDGED, 6, [0, 1, 2, 3, 4, 5], [Named(12, 14, "expired")]).untrue == 2
    assert arrived(ACKNOWLEDGED, 6, [0, 1, 2, 3, 4, 5], [Named(12, 14, "control")]).untrue == 0


def test_doubles_count_unless_the_ledger_names_them() -> None:
    found = [0, 1, 1, 2, 3, 4, 5]
    assert arrived(ACKNOWLEDGED, 6, found, []).doubled == 1
    assert arrived(ACKNOWLEDGED, 6, found, [Named(11, 12, "doubled")]) == Account(copied=6)


def test_records_of_nobody_and_another_order_count() -> None:
    assert arrived(ACKNOWLEDGED, 6, [0, 2, 1, 3, 4, 5, 9], []) == Account(copied=7, foreign=1, out_of_order=1)
    # It was written, and no broker has acknowledged it.
    assert arrived(ACKNOWLEDGED, 7, [0, 1, 2, 3, 4, 5, 6], []) == Account(copied=7)


def test_what_was_gone_before_the_mirror_began_may_be_missing() -> None:
    assert arrived(ACKNOWLEDGED, 6, [2, 3, 4, 5], [], start=12) == Account(copied=4, before=2)


def test_the_end_of_a_deleted_topic_may_be_missing() -> None:
    assert arrived(ACKNOWLEDGED, 6, [0, 1, 3], [], deleted=True) == Account(copied=3, missing=1, ended=2)
    assert arrived(ACKNOWLEDGED, 6, [], [], deleted=True) == Account(ended=6)
    assert arrived(ACKNOWLEDGED, 6, [0, 1, 3], []) == Account(copied=3, missing=3)


def test_the_last_record_of_a_key_stays() -> None:
    topic = Numbered("t", 1, {}, 1, keys=2)
    last = last_of_keys(topic, ACKNOWLEDGED)
    assert last == {4, 5}
    assert arrived(ACKNOWLEDGED, 6, [3, 4, 5], [], cleaned=Cleaned(last)) == Account(copied=3, superseded=3)
    assert arrived(ACKNOWLEDGED, 6, [3, 5], [], cleaned=Cleaned(last)) == Account(copied=2, superseded=3, missing=1)


def test_the_ledger_may_name_a_copied_record_that_the_cleaner_of_the_source_removed() -> None:
    named, numbers = [Named(11, 14, "compacted")], [0, 1, 2, 3, 4, 5]
    assert arrived(ACKNOWLEDGED, 6, numbers, named).untrue == 3
    assert arrived(ACKNOWLEDGED, 6, numbers, named, cleaned=Cleaned(left=[0, 3, 4, 5])).untrue == 1
    named.append(Named(12, 13, "expired"))
    assert arrived(ACKNOWLEDGED, 6, numbers, named, cleaned=Cleaned(left=[0, 3, 4, 5])).untrue == 2


def test_the_ranges_of_the_ledger_by_partition() -> None:
    gap = {"flow": "f", "topic": "t", "partition": 1, "start": 3, "end": 5, "reason": "expired", "at_ms": None}
    assert named_in({"gaps": [gap]}) == {("t", 1): [Named(3, 5, "expired")]}


def arrived(
    acknowledged: tuple[list[int], list[int]], written: int, found: list[int], named: list[Named], **more: Any
) -> Account:
    return account(acknowledged, written, found, named, **more)._replace(where=())


def test_the_verdict_says_where() -> None:
    assert account(ACKNOWLEDGED, 6, [0, 3, 5], [Named(16, 17, "expired")]).where == (
        "missing: [11, 13) [15, 16)",
        "untrue: [16, 17)",
    )


def chapter(**more: Any) -> dict[str, Any]:
    return {
        "at": "2026-11-27 00:00 UTC", "commit": "c", "code": "x", "seed": 1, "engine": "ray", "flavor": "plain",
        "at_once": 1, "brokers": [3, 2], "seconds": 1800.0, "records": 1_000, "faults": {"source-kill": 2},
        "recoveries": {"source-kill": [[1.0, 2.0, 3.0], [2.0, 4.0, 5.0]], "two faults at once": [[1.0, 9.0, 9.0]]},
        "restarts": 0, "unavailable": {"source-cut": "not root"}, "named": {"expired": 5}, "difference": {},
        "failures": [], "passed": True, **more,
    }  # fmt: skip


def test_the_page_adds_up_the_chapters_of_the_same_code() -> None:
    old = chapter(code="w", commit="b", difference={"missing": 1}, passed=False)
    page = storms.section([old, chapter(), chapter(commit="d")])
    assert "| b | 1 | 0.5 | 1,000 | 2 | 1 missing | 1 |" in page
    assert "| d | 2 | 1.0 | 2,000 | 4 | none | 0 |" in page
    assert "| in total |  | 3 | 1.5 | 3,000 | 6 | 1 missing | 1 |" in page
    assert "| `kill -9` of a source broker | 4 | 1.5, 2.0 | 3.0, 4.0 | 4.0, 5.0 |" in page
    assert "| two faults at once | 2 | 1.0, 1.0 | 9.0, 9.0 | 9.0, 9.0 |" in page
    assert "- `source-cut`: not root" in page
