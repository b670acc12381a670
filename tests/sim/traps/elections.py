"""Traps in which the target elects a leader at a moment at which the lane does not look."""

from typing import TYPE_CHECKING

from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import Input, ProducersAnswer
from tests.sim.host import Host
from tests.sim.traps.driving import drive, end_all_but, holder, land, on_the_way, save_position, sending
from tests.sim.traps.in_between import copied
from tests.sim.traps.moments import Script, forget, kill, lose_from, may_start, pause, write_others

if TYPE_CHECKING:
    from tests.sim.scheduler import Story
    from tests.sim.world import World


def replicate(world: "World") -> None:
    """The follower has everything, and is in sync."""
    world.target.learn(world.wall_ms)
    while world.target.replicate():
        pass


def tell(world: "World") -> None:
    """All replicators learn from the metadata who leads. What the lanes do about it is left to them."""
    for host in world.hosts:
        host.leader = world.target.leader


def _is_told(host: Host, kind: type[Input]) -> bool:
    """Whether an answer of this kind is on its way to the host."""
    return any(each[0] == "tell" and isinstance(each[1], kind) for each in host.inbox)


def _idle(world: "World", *, acked: int = 0) -> Host | None:
    """Return the newest replicator, once it has copied all there is. All others end."""
    host = holder(world, acked=acked)
    if host is None:
        return None
    end_all_but(world, host)
    at_end = drive(world, host, lambda: copied(host) and host.lane.position >= world.source.end)
    return host if at_end else None


def leader_in_the_sandwich(story: "Story") -> Script:
    """The leader changes after it has told what it remembers about the producer, which includes records that its
    successor does not have. They were not replicated."""
    world = story.world
    yield from pause(world)
    replicate(world)
    requests = sending(world)
    if not requests:
        return
    host = requests[0].host
    replicate(world)
    land(world, requests)
    host.disconnect()
    is_answered = drive(world, host, lambda: _is_told(host, ProducersAnswer), without=("replicate", "arrive"))
    if not is_answered or world.target.brokers[1 - world.target.leader].end < world.target.high_watermark:
        return
    world.note("trap: another leader after the second question")
    world.target.elect()
    tell(world)
    drive(world, host, lambda: host.lane.phase in {Phase.COPYING, Phase.HALTED})
    yield


def others_where_all_copies_were(story: "Story") -> Script:
    """The follower's disk is replaced, and the follower becomes the leader although it has no records. Other clients
    write as many records as the log had. Another holder takes the lane."""
    world = story.world
    yield from pause(world)
    host = _idle(world, acked=2)
    if host is None or not may_start(world):
        return
    save_position(host)
    kill(host)
    end = world.target.end
    world.note("trap: the target loses all copies, and others take their offsets")
    world.target.replace_follower()
    world.target.elect()
    world.target.learn(world.wall_ms)
    write_others(world, end if world.rng.random() < 0.7 else world.rng.randint(1, end + 3))
    later = world.start_host(former_dead=True)
    drive(world, later, lambda: later.lane.phase is Phase.COPYING)
    yield


def batch_where_copies_were(story: "Story") -> Script:
    """Leadership goes to a broker without records and comes back, over the same connections. Other clients write as
    many records as were lost. The lane's next batch then has the offset that the lane expects, and the lane is killed
    with this position."""
    world = story.world
    yield from pause(world)
    host = _idle(world, acked=2)
    if host is None or not may_start(world):
        return
    end = world.target.end
    world.note("trap: the lane's next batch comes after records of others, which are where its copies were")
    target = world.target
    target.replace_follower()
    if not (target.elect() and target.learn(world.wall_ms) and target.elect() and target.learn(world.wall_ms)):
        return
    write_others(world, end)
    acked = host.lane.acked
    world.source.append(world.rng.randint(1, 3), world.record_ms())
    drive(world, host, lambda: host.lane.acked > acked and copied(host), without=("moved",))
    save_position(host)
    kill(host)
    later = world.start_host(former_dead=True)
    drive(world, later, lambda: later.lane.phase is Phase.COPYING)
    yield


def foreign_tail_lost(story: "Story") -> Script:
    """An unclean election removes records of another client at the end of the log right after another holder has
    continued after them. What the holder copies gets lower offsets."""
    world = story.world
    yield from pause(world)
    host = _idle(world, acked=2)
    if host is None or not may_start(world):
        return
    save_position(host)
    kill(host)
    replicate(world)
    target = world.target
    target.in_sync = False
    tail = world.rng.randint(1, 12)
    target.foreign(tail, world.wall_ms)
    later = world.start_host(former_dead=True)
    drive(world, later, lambda: later.lane.phase is Phase.COPYING, without=("replicate",))
    if later.lane.phase is not Phase.COPYING:
        return
    world.note("trap: the target loses the end of its log, which is not the lane's")
    target.elect()
    target.learn(world.wall_ms)
    tell(world)
    for _ in range(3):
        world.source.append(world.rng.randint(1, 3), world.record_ms())
    drive(world, later, lambda: copied(later) and not later.lane.comparison.later_pending)
    yield


def lost_while_idle(story: "Story") -> Script:
    """An unclean election removes the lane's last records while it has nothing to copy."""
    world = story.world
    yield from pause(world)
    host = _idle(world)
    if host is None:
        return
    world.target.in_sync = False
    world.source.append(world.rng.randint(1, 3), world.record_ms())
    world.target.advance()
    acked = host.lane.acked
    drive(world, host, lambda: host.lane.acked > acked and copied(host), without=("replicate",))
    world.note("trap: the target loses the last records of an idle lane")
    world.target.elect()
    world.target.learn(world.wall_ms)
    forget(world)
    yield


def other_log(world: "World") -> None:
    """The leader goes down, and the other replica leads with the log that it had when it went down itself."""
    target = world.target
    former = target.brokers[target.leader]
    target.brokers[1 - target.leader].leads = False
    target.elect()
    former.watermark = None
    target.in_sync = False
    target.advance()


def refused_batches_come_back(story: "Story") -> Script:
    """A deposed leader appends batches, which the lane counts as refused. The source loses their records, and the next
    leader gets others under their ordinals. Then the deposed one leads again, with its own log."""
    world = story.world
    yield from pause(world)
    host = _idle(world, acked=2)
    if host is None:
        return
    replicate(world)
    save_position(host)
    world.target.in_sync = False
    begin = world.source.end
    for _ in range(world.rng.randint(2, 4)):
        world.source.append(world.rng.randint(1, 2), world.record_ms())
    requests = drive(world, host, lambda: on_the_way(world, host), without=("arrive", "replicate"))
    if not requests:
        return
    world.note("trap: batches of a deposed leader come back")
    other_log(world)
    land(world, requests)
    if not lose_from(world, begin):
        return
    host.disconnect()
    tell(world)

    def is_done() -> bool:
        lane = host.lane
        is_idle = copied(host) and not lane.notes and lane.log.end_epoch == world.target.epoch
        return is_idle and lane.position >= world.source.end

    if not drive(world, host, is_done, without=("replicate", "learn")):
        return
    save_position(host)
    other_log(world)
    forget(world)
    host.disconnect()
    tell(world)
    drive(world, host, is_done, without=("replicate", "learn"))
    yield
