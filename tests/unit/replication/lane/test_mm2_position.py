"""Where MirrorMaker 2 stopped, according to its own position and to the end of the target. Every letter is a record."""

import random

from mirrord.replication.lane.mm2_position import OffsetRow, Tail, TopicEnd


def found(target: str, source: str, said: int, *, at: int = 0, aborted: str = "", whole: bool = True) -> TopicEnd:
    """The source's first letter is at offset `at`; those in `aborted` are of aborted transactions."""
    tail = Tail(said, [OffsetRow(offset, letter.encode()) for offset, letter in enumerate(target)], whole=whole)
    for offset, letter in enumerate(source, at):
        if not tail.take(OffsetRow(offset, letter.encode(), letter in aborted)):
            break
    return tail.result()


def test_a_clean_end() -> None:
    assert found("abc", "abcdef", 3) == TopicEnd(3, "verified")
    assert found("bc", "abcdef", 3) == TopicEnd(3, "verified")
    assert found("ghi", "efghijk", 109, at=104) == TopicEnd(109, "verified")


def test_records_copied_after_the_saved_position_are_not_copied_again() -> None:
    assert found("abcde", "abcdefg", 3) == TopicEnd(5, "verified")
    assert found("de", "abcdefg", 1) == TopicEnd(5, "verified")


def test_duplicates_are_recorded_and_not_copied_a_third_time() -> None:
    assert found("abcdecdef", "abcdefgh", 6) == TopicEnd(6, "verified", ((2, 5),))
    # It was stopped while it copied again: what it had reached before counts.
    assert found("abcdefcd", "abcdefgh", 2) == TopicEnd(6, "verified", ((2, 4),))


def test_a_target_that_lost_its_end() -> None:
    assert found("abc", "abcdefg", 5) == TopicEnd(3, "behind")


def test_records_that_the_target_lacks_are_recorded() -> None:
    assert found("abde", "abcdefg", 5) == TopicEnd(5, "verified", missing=((2, 3),))
    # A cleaner has removed records, so it is impossible to say.
    assert found("abde", "abcdefg", 5, whole=False) == TopicEnd(5, "verified")


def test_aborted_records_may_be_there_or_not() -> None:
    assert found("abXYcd", "abXYcdef", 6, aborted="XY") == TopicEnd(6, "verified")
    assert found("abcd", "abXYcdef", 6, aborted="XY") == TopicEnd(6, "verified")
    assert found("abcd", "abcdXYef", 4, aborted="XY") == TopicEnd(4, "verified")


def test_other_writers_do_not_disturb() -> None:
    assert found("1ab2c3", "abcdef", 3) == TopicEnd(3, "verified")


def test_a_target_with_other_records_is_strange() -> None:
    assert found("123", "abcdef", 3) == TopicEnd(-1, "strange")


def test_nothing_to_compare() -> None:
    assert found("", "abcdef", 3) == TopicEnd(3, "unverifiable")
    # The source has deleted everything that was copied.
    assert found("abc", "defg", 3, at=3) == TopicEnd(3, "unverifiable")
    assert found("abc", "", 3, at=3) == TopicEnd(3, "unverifiable")


def test_records_that_are_all_alike() -> None:
    assert found("aaa", "aaaaaaa", 3).position == 3
    assert found("aaaaa", "aaaaaaaaa", 3).position >= 3
    # Rather once more than not at all.
    assert found("xyaaa", "xyaaaaa", 2).position == 5


def test_a_position_that_is_long_out_of_date() -> None:
    source = "".join(chr(0x4E00 + number) for number in range(5_000))
    assert found(source[4_000:4_050], source, 10) == TopicEnd(4_050, "verified")


def test_a_run_of_mirror_maker_with_crashes(seed: int) -> None:
    """It copies in order, saves its position now and then, and after a crash begins there again."""
    for turn in range(300):
        chance = random.Random(f"{seed} {turn}")
        source = "".join(chr(0x4E00 + number) for number in range(chance.randrange(20, 120)))
        target, word, at, reached = "", 0, 0, 0
        for _ in range(chance.randrange(1, 60)):
            kind = chance.random()
            if kind < 0.7 and at < len(source):
                step = min(chance.randrange(1, 6), len(source) - at)
                target += source[at : at + step]
                at += step
                reached = max(reached, at)
            elif kind < 0.85:
                word = at
            else:
                at = word
        ending = found(target, source, word)
        again = {letter for letter in source if target.count(letter) > 1}
        doubled = "".join(source[start:end] for start, end in ending.doubled)
        assert (ending.position, set(doubled), ending.missing) == (reached, again, ()), (target, word)
