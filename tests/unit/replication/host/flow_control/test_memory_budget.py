"""How much a replicator holds, and how fast it takes more: who is refused, and what is released."""

import asyncio

from mirrord.kafka.client.receive_buffers import BufferPool, Frame
from mirrord.replication.host.flow_control.memory_budget import BATCH_BYTES, MemoryBudget, Rate


async def test_a_waiter_that_gives_up_is_removed_from_the_queue() -> None:
    budget = MemoryBudget(10)
    asked: list[int] = []
    budget.on_room = lambda: asked.append(1)
    assert budget.promise(10, "a")
    assert not budget.promise(10, "b")
    assert not budget.promise(10, "c")
    budget.settle(10)
    assert not budget.promise(10, "a"), "others were refused before"
    assert not budget.promise(10, "c")
    budget.leave("b")
    assert budget.promise(10, "c")
    assert len(asked) >= 3


async def test_a_rate_is_kept_in_the_long_run_and_shared() -> None:
    now = 0.0
    rate = Rate(1_000, lambda: now)
    passed = 0
    for _ in range(10_000):
        if rate.wait_s() == 0:
            rate.spend(700)
            passed += 700
        now += 0.01
    assert 100_000 <= passed <= 100_000 + 1_000 + 700
    budget = MemoryBudget(1 << 20, 100_000)
    budget.share(4)
    assert budget.most_bytes == 25_000
    frame = budget.hold(Frame(bytearray(200_000), 0, 200_000))
    assert not budget.promise(1, "a"), "the rate is used up"
    del frame


async def test_a_rate_limit_resumes_by_itself() -> None:
    budget = MemoryBudget(4 << 20, 1_000_000)
    room = asyncio.Event()
    budget.on_room = room.set
    del_me = budget.hold(Frame(bytearray(1_050_000), 0, 1_050_000))
    assert not budget.promise(1, "a")
    del del_me
    room.clear()
    async with asyncio.timeout(10):
        await room.wait()
    assert budget.promise(1, "a")


def test_held_and_pooled_bytes_together_stay_within_the_limit() -> None:
    pool, budget = BufferPool(4 << 20), MemoryBudget(4 << 20)
    small = [budget.hold(Frame(pool.acquire(1 << 20), 0, 1 << 20, pool)) for _ in range(4)]
    small.clear()
    assert (budget.held_bytes, pool.idle_bytes) == (0, 4 << 20)
    large = budget.hold(Frame(pool.acquire(3 << 20), 0, 3 << 20, pool))
    assert (budget.held_bytes, pool.idle_bytes) == (3 << 20, 1 << 20)
    del large
    assert (budget.held_bytes, pool.idle_bytes) == (0, 4 << 20), "and are used again"


def test_a_buffer_goes_back_to_its_pool_when_nobody_needs_it() -> None:
    pool, budget = BufferPool(), MemoryBudget(1 << 20)
    buffer = pool.acquire(100_000)
    held = budget.hold(Frame(buffer, 0, 100_000, pool))
    assert budget.held_bytes == len(buffer)
    assert pool.idle_bytes == 0
    del held
    assert budget.held_bytes == 0
    assert pool.idle_bytes == len(buffer)


def test_the_memory_of_batches_is_held_while_their_frame_is_held() -> None:
    budget = MemoryBudget(1 << 20)
    held = budget.hold(Frame(bytearray(1_000), 0, 1_000))
    held.count(3)
    held.count(2)
    assert budget.held_bytes == 1_000 + 5 * BATCH_BYTES
    del held
    assert budget.held_bytes == 0
