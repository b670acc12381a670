"""The strikes at brokers, controllers, topics, networks, disks and clocks.

A strike claims what it needs, causes the fault, and returns what was done. It returns None if that is impossible at the
moment; the kind is then tried again later.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from random import Random

from bench.faults.storm import leaders
from bench.faults.storm.ground import SIDES, Blow, Ground, Side, full_disk_broker, part
from bench.faults.storm.leaders import Leaders
from bench.faults.storm.load import PREFIX, repeat
from mirrord.lab.cluster import Cluster
from mirrord.lab.jars import KAFKA_VERSION
from mirrord.lab.server_properties import CONTROLLER_ID
from mirrord.model.errors import EnvironmentFault

Strike = Callable[[Ground, Random], Blow | None]
_LEDGER = "mirrord.eu-us.ledger"
_PREFIXES: Mapping[Side, tuple[str, ...]] = {
    "source": (PREFIX,),
    "target": (f"eu.{PREFIX}", "mirrord.", "__transaction_state"),
}


def kill(side: Side) -> Strike:
    return _at_one_broker(side, "killed", Cluster.kill, Cluster.restart)


def term(side: Side) -> Strike:
    return _at_one_broker(side, "stopped", Cluster.stop, Cluster.restart)


def stop(side: Side) -> Strike:
    return _at_one_broker(side, "paused", Cluster.pause, Cluster.resume)


def _at_one_broker(
    side: Side, done: str, act: Callable[[Cluster, int], None], undo: Callable[[Cluster, int], None]
) -> Strike:
    def strike(ground: Ground, chance: Random) -> Blow | None:
        broker = ground.free_broker(side, chance)
        if broker is None:
            return None
        cluster = ground.clusters[side]
        act(cluster, broker)
        return Blow(f"{side} broker {broker} {done}", lambda: undo(cluster, broker), (part(side, broker),))

    return strike


def kill_all(side: Side) -> Strike:
    def strike(ground: Ground, _: Random) -> Blow | None:
        cluster = ground.clusters[side]
        parts = tuple(part(side, broker) for broker in cluster.options.broker_ids)
        if not ground.claim(*parts):
            return None
        for broker in cluster.options.broker_ids:
            cluster.kill(broker)

        def heal() -> None:
            with ThreadPoolExecutor(len(parts)) as starters:
                list(starters.map(cluster.restart, cluster.options.broker_ids))

        return Blow(f"all {side} brokers killed", heal, parts)

    return strike


def controller(side: Side, *, killed: bool) -> Strike:
    def strike(ground: Ground, _: Random) -> Blow | None:
        name = part(side, CONTROLLER_ID)
        if not ground.claim(name):
            return None
        cluster = ground.clusters[side]
        if killed:
            cluster.kill(CONTROLLER_ID)
            return Blow(f"{side} controller killed", lambda: cluster.restart(CONTROLLER_ID), (name,))
        cluster.pause(CONTROLLER_ID)
        return Blow(f"{side} controller paused", lambda: cluster.resume(CONTROLLER_ID), (name,))

    return strike


def election(side: Side) -> Strike:
    def strike(ground: Ground, chance: Random) -> Blow | None:
        cluster = ground.clusters[side]
        with suppress(EnvironmentFault):
            asked = Leaders(cluster.aside)
            found = asked.replicas(_PREFIXES[side])
            moved = leaders.rotated({place: found[place] for place in chance.sample(sorted(found), len(found) // 3)})
            leaders.reassign(_asides(ground, side), moved)
            asked.elect_preferred(moved)
            return Blow(f"{len(moved)} partitions of the {side} get other leaders")
        return None

    return strike


def reassignment(side: Side) -> Strike:
    def strike(ground: Ground, chance: Random) -> Blow | None:
        cluster, ports = ground.clusters[side], _asides(ground, side)
        broker = ground.free_broker(side, chance)
        if broker is None:
            return None
        name = part(side, broker)
        with suppress(EnvironmentFault):
            found = Leaders(cluster.aside).replicas(_PREFIXES[side])
            some = {place: found[place] for place in chance.sample(sorted(found), len(found) // 3)}
            reduced = leaders.without(some, broker)
            leaders.reassign(ports, reduced)
            whole = {place: some[place] for place in reduced}
            what = f"{len(reduced)} partitions of the {side} leave broker {broker}"
            return Blow(what, lambda: repeat(lambda: leaders.reassign(ports, whole)), (name,))
        ground.release((name,))
        return None

    return strike


def _asides(ground: Ground, side: Side) -> list[int]:
    cluster = ground.clusters[side]
    return [cluster.ports(broker).aside for broker in cluster.options.broker_ids]


def growth(ground: Ground, _: Random) -> Blow | None:
    partitions = ground.streams.grow()
    return None if partitions is None else Blow(f"a topic grows to {partitions} partitions")


def deletion(ground: Ground, _: Random) -> Blow | None:
    with suppress(EnvironmentFault):
        deleted = ground.streams.delete()
        return None if deleted is None else Blow(f"{deleted} is deleted")
    return None


def cut(side: Side, which: str) -> Strike:
    """`which`: requests to a broker (`to`), its responses (`from`), everything of all brokers (`all`), what other
    brokers fetch from a broker (`replicas`), or what reaches the controller (`controller`)."""

    def strike(ground: Ground, chance: Random) -> Blow | None:
        network, cluster = ground.network, ground.clusters[side]
        if network is None:
            return None
        broker = chance.choice(cluster.options.broker_ids)
        ports = {each: cluster.ports(each) for each in cluster.options.node_ids}
        name = f"line-{side}-{which}"
        if not ground.claim(name):
            return None
        match which:
            case "to":
                what, number = f"requests to {side} broker {broker} are lost", network.cut(to=[ports[broker].client])
            case "from":
                what = f"responses of {side} broker {broker} are lost"
                number = network.cut(from_=[ports[broker].client])
            case "all":
                clients = [ports[each].client for each in cluster.options.broker_ids]
                what, number = f"mirrord is cut off from the {side}", network.cut(to=clients, from_=clients)
            case "replicas":
                what = f"{side} broker {broker} gets no fetches of replicas"
                number = network.cut(to=[ports[broker].internal])
            case _:
                what = f"nothing reaches the {side} controller"
                number = network.cut(to=[ports[CONTROLLER_ID].controller])
        return Blow(what, lambda: network.heal(number), (name,))

    return strike


def disk(side: Side, *, ledger: bool = False) -> Strike:
    """Fill the disk of the broker that has a small one; with `ledger`, it leads the ledger first."""

    def strike(ground: Ground, _: Random) -> Blow | None:
        small, broker, cluster = ground.disks.get(side), full_disk_broker(), ground.clusters[side]
        name = part(side, broker)
        if small is None or not ground.claim(name):
            return None
        if ledger and not _lead_ledger(ground, broker):
            ground.release((name,))
            return None
        small.fill()

        def heal() -> None:
            small.empty()
            if cluster.is_running(broker):
                # The broker may be about to end: its log folder is offline.
                cluster.stop(broker)
            cluster.restart(broker)

        return Blow(f"the disk of {side} broker {broker} is full{', it leads the ledger' * ledger}", heal, (name,))

    return strike


def _lead_ledger(ground: Ground, broker: int) -> bool:
    with suppress(EnvironmentFault):
        asked = Leaders(ground.clusters["target"].aside)
        found = {place: brokers for place, brokers in asked.replicas((_LEDGER,)).items() if broker in brokers}
        ordered = {place: [broker, *(each for each in brokers if each != broker)] for place, brokers in found.items()}
        leaders.reassign(_asides(ground, "target"), ordered)
        asked.elect_preferred(ordered)
        return asked.leader(_LEDGER) == broker
    return False


def spill_disk(ground: Ground, _: Random) -> Blow | None:
    small = ground.disks.get("spill")
    if small is None or not ground.claim("spill"):
        return None
    small.fill()
    return Blow("the disk of the spill file is full", small.empty, ("spill",))


def clock(side: Side | None) -> Strike:
    """Set the clock of a broker, or of mirrord, an hour ahead or back."""

    def strike(ground: Ground, chance: Random) -> Blow | None:
        broker = chance.choice(ground.clusters[side].options.broker_ids) if side else 0
        name = part(side, broker) if side else "mirrord"
        found, claimed = ground.clocks.get(name), f"clock of {name}"
        if found is None or not ground.claim(claimed):
            return None
        ahead = chance.random() < 0.5
        found.step(ahead=ahead)
        return Blow(f"the {claimed} is an hour {'ahead' if ahead else 'behind'}", found.mend, (claimed,))

    return strike


def upgrade(side: Side) -> Strike:
    """Restart the next node with the newer version: first the controller, then the brokers."""

    def strike(ground: Ground, _: Random) -> Blow | None:
        nodes = sorted((node for each, node in ground.older if each == side), reverse=True)
        if not nodes or not ground.claim(part(side, nodes[0])):
            return None
        node, cluster = nodes[0], ground.clusters[side]
        ground.older.discard((side, node))
        cluster.change_version(KAFKA_VERSION, node)
        return Blow(f"node {node} of the {side} runs {KAFKA_VERSION}", parts=(part(side, node),))

    return strike


STRIKES: Mapping[str, Strike] = {
    **{f"{side}-kill": kill(side) for side in SIDES},
    **{f"{side}-term": term(side) for side in SIDES},
    **{f"{side}-stop": stop(side) for side in SIDES},
    **{f"{side}-kill-all": kill_all(side) for side in SIDES},
    **{f"{side}-controller-kill": controller(side, killed=True) for side in SIDES},
    **{f"{side}-controller-stop": controller(side, killed=False) for side in SIDES},
    **{f"{side}-election": election(side) for side in SIDES},
    **{f"{side}-reassignment": reassignment(side) for side in SIDES},
    **{f"{side}-cut": cut(side, "all") for side in SIDES},
    **{f"{side}-cut-{which}": cut(side, which) for side in SIDES for which in ("to", "from", "replicas", "controller")},
    **{f"{side}-disk": disk(side) for side in SIDES},
    "ledger-disk": disk("target", ledger=True),
    "spill-disk": spill_disk,
    **{f"{side}-clock": clock(side) for side in SIDES},
    "mirrord-clock": clock(None),
    **{f"{side}-upgrade": upgrade(side) for side in SIDES},
    "growth": growth,
    "deletion": deletion,
}
