"""The client's side of a fetch session, against answers as a broker gives them."""

from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.fetch import FetchPosition, FetchResponse, SessionStep
from mirrord.kafka.protocol.fetch_session import LAST_EPOCH, FetchSession
from mirrord.kafka.protocol.primitives import TopicAndPartition

A, B, C = ("orders", 0), ("orders", 1), ("payments", 0)


def good(session_id: int = 99) -> FetchResponse:
    return FetchResponse(0, session_id, 0, [])


def bad(error: ErrorCode) -> FetchResponse:
    return FetchResponse(error, 0, 0, [])


def positions(**offsets: int) -> dict[TopicAndPartition, FetchPosition]:
    return {{"a": A, "b": B, "c": C}[name]: FetchPosition(offset) for name, offset in offsets.items()}


def opened(wanted: dict[TopicAndPartition, FetchPosition]) -> FetchSession:
    session = FetchSession()
    session.next_step(wanted)
    assert session.answered(good())
    return session


def test_the_first_request_names_everything() -> None:
    wanted = positions(a=1, b=2)
    assert FetchSession().next_step(wanted) == SessionStep(0, 0, list(wanted.items()), ())


def test_then_only_what_changed() -> None:
    session = opened(positions(a=1, b=2))
    assert session.next_step(positions(a=1, b=5, c=0)) == SessionStep(99, 1, list(positions(b=5, c=0).items()), [])
    assert session.answered(good())
    assert session.next_step(positions(a=1, b=5, c=0)) == SessionStep(99, 2, [], [])


def test_what_is_no_longer_wanted_is_forgotten_and_can_come_back() -> None:
    session = opened(positions(a=1, b=2))
    assert session.next_step(positions(b=2)) == SessionStep(99, 1, [], [A])
    assert session.answered(good())
    assert session.next_step(positions(a=1, b=2)) == SessionStep(99, 2, list(positions(a=1).items()), [])


def test_every_part_of_a_position_counts() -> None:
    session = opened({A: FetchPosition(1, leader_epoch=4)})
    assert session.next_step({A: FetchPosition(1, leader_epoch=5)}).fetch == [(A, FetchPosition(1, leader_epoch=5))]


def test_an_evicted_session_is_opened_again() -> None:
    session = opened(positions(a=1))
    session.next_step(positions(a=2, b=3))
    assert not session.answered(bad(ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
    assert session.next_step(positions(a=2, b=3)) == SessionStep(0, 0, list(positions(a=2, b=3).items()), ())
    assert session.answered(good(100))
    assert session.next_step(positions(a=2, b=3)) == SessionStep(100, 1, [], [])


def test_after_any_other_error_the_old_session_is_closed_with_the_new_request() -> None:
    for error in (ErrorCode.INVALID_FETCH_SESSION_EPOCH, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR):
        session = opened(positions(a=1))
        session.next_step(positions(a=2))
        assert not session.answered(bad(error))
        assert session.next_step(positions(a=2)) == SessionStep(99, 0, list(positions(a=2).items()), ())


def test_without_a_session_every_request_names_everything() -> None:
    session = FetchSession()
    for _ in range(2):
        step = session.next_step(positions(a=1))
        assert (step.session_id, step.epoch, len(step.fetch)) == (0, 0, 1)
        assert session.answered(good(0))
        assert not session.open


def test_the_epoch_begins_again_at_one() -> None:
    session = opened(positions(a=1))
    session._epoch = LAST_EPOCH
    assert session.next_step(positions(a=1)).epoch == LAST_EPOCH
    assert session.answered(good())
    assert session.next_step(positions(a=1)).epoch == 1
