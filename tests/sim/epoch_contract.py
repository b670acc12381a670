"""What a target broker answers about earlier leader epochs of its log: the same tests for the fake and real ones."""

from tests.sim.contract import Batch, Target


class EpochContract:
    """Tests with two brokers. Needs the fixture `two`."""

    async def test_an_earlier_epoch_ends_where_the_next_one_begins(self, two: Target) -> None:
        partition = await two.partition()
        *_, last = await partition.fill(Batch(await partition.producer(), 0), 2)
        first = await partition.leader_epoch()
        await partition.elect()
        unused = await partition.leader_epoch()
        await partition.elect()
        await partition.fill(last.next(), 1)
        third = await partition.leader_epoch()
        for asked in (first, unused):
            assert await partition.end_of(asked) == (first, 20)
        assert await partition.end_of(third) == (third, 30)
        assert await partition.end_of(third + 1) == (-1, -1)
        await partition.delete_records(25)
        for asked in (first, unused):
            assert await partition.end_of(asked) == (asked, 25), "the first epoch is no longer known"
        assert await partition.end_of(third) == (third, 30)

    async def test_an_epoch_below_all_known_ones_ends_where_the_log_begins(self, two: Target) -> None:
        partition = await two.partition()
        producer, lost = await partition.producer(), list[int]()

        async def lose() -> None:
            await partition.fill(Batch(producer, 0), 2)
            lost.append(await partition.leader_epoch())

        await partition.elect_unclean(lose)
        (epoch,) = lost
        assert await partition.leader_epoch() > epoch
        assert await partition.end_of(epoch) == (epoch, 0)
