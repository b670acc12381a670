"""Which batches of the source are copies: the hint in the header, and what decides."""

from mirrord.kafka.protocol.record_batch import TRANSACTIONAL, HeaderTuple
from mirrord.model.runs import Run, Runs
from mirrord.replication.lane.signals import Writer
from mirrord.replication.lane.source.loop_detection import BatchOrigin, Origins

ID = 700


def header(base: int, count: int, sequence: int, *, producer: int = ID, epoch: int = 0, leader: int = 3) -> HeaderTuple:
    return (base, 100, leader, 2, 0, 0, count - 1, 0, 0, producer, epoch, sequence, count)


def writer(*runs: Run, known_to: tuple[int, int, int] = (0, 0, -1)) -> Writer:
    return Writer("back", ID, 0, Runs(runs), *known_to)


def origins_of(*writers: Writer, asked: int = ID) -> Origins:
    origins = Origins()
    origins.judge(header(0, 1, 0, producer=asked))  # the epoch is seen
    origins.learn(writers, asked)
    return origins


def test_an_unknown_id_has_to_be_asked_about_once() -> None:
    origins = Origins()
    assert origins.judge(header(0, 1, 0)) is BatchOrigin.UNKNOWN
    origins.learn((), ID)
    assert origins.judge(header(0, 1, 0)) is BatchOrigin.NATIVE
    assert origins.judge(header(1, 1, 0, producer=ID + 1)) is BatchOrigin.UNKNOWN, "only what was asked about is known"


def test_after_a_change_of_leaders_it_is_asked_again() -> None:
    """A cluster that was cloned or restored may give the id of an old producer to a lane."""
    origins = origins_of()
    assert origins.judge(header(5, 1, 0, leader=4)) is BatchOrigin.UNKNOWN


def test_batches_without_a_producer_id_or_in_a_transaction_are_not_looked_up() -> None:
    fields = list(header(0, 1, 0))
    fields[5] = TRANSACTIONAL
    origins = Origins()
    assert origins.judge(header(0, 1, -1, producer=-1, epoch=-1)) is BatchOrigin.NATIVE
    assert origins.judge(tuple(fields)) is BatchOrigin.NATIVE  # type: ignore[arg-type]


def test_a_batch_within_a_run_is_a_copy() -> None:
    origins = origins_of(writer(Run(0, 10), Run(5, 40), known_to=(9, 44, 3)))
    assert [origins.judge(header(*each)) for each in ((10, 3, 0), (13, 2, 3), (40, 4, 5))] == [BatchOrigin.COPY] * 3


def test_a_batch_that_continues_after_the_resume_position_is_a_copy_at_once() -> None:
    origins = origins_of(writer(Run(0, 10), known_to=(9, 19, 3)))
    assert origins.judge(header(30, 2, 9)) is BatchOrigin.COPY
    assert origins.judge(header(32, 2, 11)) is BatchOrigin.COPY
    assert origins.judge(header(50, 2, 20)) is BatchOrigin.COPY, "a cleaner has removed those between"
    assert origins.judge(header(52, 2, 40)) is BatchOrigin.UNKNOWN, "the log leaps: the ledger has to tell"


def test_the_first_record_of_a_lane_is_believed_to_its_ledger_alone() -> None:
    """Another producer that got the same id from a restored cluster begins with the sequence 0, too."""
    assert origins_of(writer()).judge(header(10, 2, 0)) is BatchOrigin.UNKNOWN
    assert origins_of(writer(Run(0, 10))).judge(header(10, 2, 0)) is BatchOrigin.COPY
    assert origins_of(writer(Run(0, 12))).judge(header(10, 2, 0)) is BatchOrigin.UNKNOWN


def test_a_resume_position_after_it_proves_that_it_is_none() -> None:
    known = writer(Run(0, 10), known_to=(9, 60, 3))
    assert origins_of(known).judge(header(30, 2, 0)) is BatchOrigin.NATIVE
    assert origins_of(known).judge(header(59, 2, 0)) is BatchOrigin.UNKNOWN, (
        "the resume position does not reach its end"
    )
    assert origins_of(known).judge(header(30, 2, 0, leader=4)) is BatchOrigin.UNKNOWN, (
        "the position is of a log that may be gone"
    )


def test_another_epoch_of_the_same_id_is_another_producer() -> None:
    assert origins_of(writer(Run(0, 10), known_to=(9, 19, 3))).judge(header(10, 3, 0, epoch=1)) is BatchOrigin.NATIVE


def test_two_lanes_may_write_into_one_partition() -> None:
    other = Writer("other", ID + 1, 0, Runs([Run(0, 20)]))
    origins = origins_of(writer(Run(0, 10), known_to=(5, 15, 3)), other)
    assert origins.judge(header(10, 5, 0)) is BatchOrigin.COPY
    assert origins.judge(header(20, 5, 0, producer=ID + 1)) is BatchOrigin.COPY


def test_ordinals_beyond_the_sequences() -> None:
    far = 5 * (1 << 31) + 7
    origins = origins_of(writer(Run(0, 0), Run(far, far + 100), known_to=(far + 3, far + 103, 3)))
    assert origins.judge(header(far + 100, 3, 7)) is BatchOrigin.COPY
    assert origins.judge(header(far + 110, 3, 10)) is BatchOrigin.COPY
    assert origins.judge(header(12, 3, 12)) is BatchOrigin.COPY, "far behind, too"
