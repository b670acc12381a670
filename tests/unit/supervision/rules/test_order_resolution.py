"""What commands mean and result in, without a running daemon."""

import msgspec
import pytest

from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.orders import CopyingPaused, HostDrained, HostRestored, LanePinned, OrderFact
from mirrord.ledger.standing_orders import ObjectKind, Order, Orders, OrderVerb
from mirrord.model.errors import ConfigError
from mirrord.model.names import LaneId, TopicPartition
from mirrord.supervision.rules.order_resolution import Decision, FlowView, decide, find
from mirrord.supervision.rules.reconcile import ObservedReplicator

ADA = Origin("ada@host", "", 0)
LANES = {TopicPartition(topic, at): LaneId(f"{topic}.{at}") for topic in ("orders", "payments") for at in range(2)}
HOSTS = (
    ObservedReplicator("mirrord/eu-us/replicator-0.g1.1", 0, "serving", frozenset(LANES.values())),
    ObservedReplicator("mirrord/eu-us/replicator-1.g1.2", 1, "serving"),
    ObservedReplicator("mirrord/eu-us/replicator-2.g1.3", 2, "starting"),
)
FIRST, SECOND, _ = (host.name for host in HOSTS)


def view(*facts: OrderFact, flow: str = "eu-us", room: bool = True) -> FlowView:
    return FlowView(
        flow=flow,
        lanes=LANES,
        known=[TopicPartition("old", 0)],
        hosts=HOSTS,
        takers={FIRST: True, SECOND: room},
        alone={LANES[TopicPartition("payments", 1)]},
        orders=Orders.of(facts),
    )


def given(verb: OrderVerb, name: str, *, to: str = "", flow: str = "", kind: ObjectKind | None = None) -> Order:
    return Order(verb=verb, name=name, to=to, flow=flow, kind=kind, by="ada@host")


def outcome(order: Order, here: FlowView) -> Decision:
    return decide(order, find(order, [here]), here, 0)


def after(here: FlowView, decision: Decision) -> FlowView:
    facts = [fact for fact in decision.facts if isinstance(fact, OrderFact)]
    return here._replace(orders=Orders.of((*here.orders.facts(), *facts)))


@pytest.mark.parametrize(
    ("name", "fact", "lanes"),
    [
        ("eu-us", CopyingPaused("", -1, ADA), ["orders-0", "orders-1", "payments-0", "payments-1"]),
        ("orders", CopyingPaused("orders", -1, ADA), ["orders-0", "orders-1"]),
        ("orders-1", CopyingPaused("orders", 1, ADA), ["orders-1"]),
        ("eu-us:orders-1", CopyingPaused("orders", 1, ADA), ["orders-1"]),
        ("old", CopyingPaused("old", -1, ADA), []),
    ],
)
def test_a_pause_covers_what_its_name_covers_and_counts_once(name: str, fact: OrderFact, lanes: list[str]) -> None:
    here = view()
    first = outcome(given("pause", name), here)
    assert (first.facts, [str(lane) for lane in first.lanes]) == ((fact,), lanes)
    again = outcome(given("pause", name), after(here, first))
    assert (again.facts, again.lanes) == ((), ())
    assert "already paused, by ada@host" in again.notes[0]
    resumed = outcome(given("resume", name), after(here, first))
    assert [str(lane) for lane in resumed.lanes] == lanes
    back = after(after(here, first), resumed)
    assert back.orders == Orders()
    assert outcome(given("resume", name), back).notes[0].endswith("is not paused")


def test_a_pause_inside_a_wider_one_touches_no_lane_and_outlives_it() -> None:
    here = view(CopyingPaused("", -1, ADA))
    inside = outcome(given("pause", "orders-0"), here)
    assert inside.facts
    assert inside.lanes == ()
    both = after(here, inside)
    wide = outcome(given("resume", "eu-us"), both)
    assert [str(lane) for lane in wide.lanes] == ["orders-1", "payments-0", "payments-1"]
    assert wide.notes == ("paused by separate commands: orders-0",)
    narrow = outcome(given("resume", "orders-0"), both)
    assert narrow.lanes == ()
    assert "orders-0 of eu-us is still paused: the flow is, by ada@host" in narrow.notes[0]


def test_new_partitions_of_a_paused_topic_are_paused() -> None:
    orders = view(CopyingPaused("orders", -1, ADA)).orders
    assert orders.pause_of("orders", 99) is not None
    assert orders.pause_of("orders-9", 0) is None


@pytest.mark.parametrize(
    ("verb", "name", "like"),
    [
        ("pause", "oders", "orders"),
        ("pause", "orders-3", "orders-1"),
        ("resume", "eu-uss", "eu-us"),
        ("move", "orders-00", "orders-0"),
        ("drain", "repicator-1", "replicator-1"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_one(verb: OrderVerb, name: str, like: str) -> None:
    with pytest.raises(ConfigError, match=f'no .*"{name}"; did you mean "{like}"'):
        find(given(verb, name, to=SECOND), [view()])


def test_a_name_of_nothing_alike_lists_what_there_is() -> None:
    with pytest.raises(ConfigError, match=r"there are: .*eu-us"):
        find(given("pause", "zzzzzz"), [view()])
    with pytest.raises(ConfigError, match='no flow "other"'):
        find(given("pause", "orders", flow="other"), [view()])


def test_a_name_of_several_things_has_to_be_chosen() -> None:
    here, there = view(), view(flow="us-eu")
    with pytest.raises(ConfigError, match="topic orders of eu-us, topic orders of us-eu; choose with --flow"):
        find(given("pause", "orders"), [here, there])
    assert find(given("pause", "orders", flow="us-eu"), [here, there]).flow == "us-eu"
    assert find(given("pause", "us-eu:orders"), [here, there]).flow == "us-eu"
    both = here._replace(lanes={**LANES, TopicPartition("orders-1", 0): LaneId("x")})
    with pytest.raises(ConfigError, match="topic orders-1 of eu-us, orders-1 of eu-us; choose"):
        find(given("pause", "orders-1"), [both])
    assert find(given("pause", "orders-1", kind="lane"), [both]).partition == 1
    with pytest.raises(ConfigError, match="drain does not apply to a topic; it applies to: replicator"):
        find(given("drain", "orders", kind="topic"), [both])


@pytest.mark.parametrize("to", ["replicator-1", "replicator-1.g1.2", SECOND])
def test_a_move_pins_the_lane_to_the_replicators_number(to: str) -> None:
    here = view()
    moved = outcome(given("move", "orders-0", to=to), here)
    assert moved.facts == (LanePinned("orders", 0, 1, ADA),)
    assert [str(lane) for lane in moved.lanes] == ["orders-0"]
    again = outcome(given("move", "orders-0", to=to), after(here, moved))
    assert again.facts == ()
    back = outcome(given("move", "orders-0", to=FIRST), after(here, moved))
    assert back.facts == (LanePinned("orders", 0, 0, ADA),)
    free = outcome(given("unpin", "orders-0"), after(here, moved))
    assert after(after(here, moved), free).orders == Orders()
    assert outcome(given("unpin", "orders-0"), here).facts == ()


def test_a_move_to_where_the_lane_is_moves_nothing_and_pins_it() -> None:
    stays = outcome(given("move", "orders-0", to="replicator-0"), view())
    assert stays.lanes == ()
    assert stays.done == ("orders-0 of eu-us stays on replicator 0",)


def test_a_paused_lane_may_be_moved_and_still_stands() -> None:
    moved = outcome(given("move", "orders-0", to="replicator-1"), view(CopyingPaused("orders", -1, ADA)))
    assert moved.facts
    assert "orders-0 is paused, by ada@host" in moved.notes[0]


@pytest.mark.parametrize(
    ("name", "to", "here", "why"),
    [
        ("orders-0", "replicator-7", view(), 'no replicator of eu-us "replicator-7"'),
        ("orders-0", "replicator-2", view(), "accepts no lanes: it is starting"),
        ("orders-0", "replicator-1", view(room=False), "as many lanes as"),
        ("orders-0", "replicator-1", view(HostDrained(SECOND, ADA)), "is drained, by ada@host"),
        ("payments-1", "replicator-1", view(), "has a dedicated replicator"),
    ],
)
def test_a_move_that_cannot_be_is_refused(name: str, to: str, here: FlowView, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        outcome(given("move", name, to=to), here)


def test_a_replicator_is_drained_and_restored_once() -> None:
    here = view(HostDrained("mirrord/eu-us/replicator-0.g0.1", ADA))
    drained = outcome(given("drain", "replicator-0"), here)
    # Commands for a replicator that has ended are removed with it.
    assert [type(fact) for fact in drained.facts] == [HostRestored, HostDrained]
    assert len(drained.lanes) == len(LANES)
    after_it = after(here, drained)
    assert set(after_it.orders.drained) == {FIRST}
    assert outcome(given("drain", FIRST), after_it).facts == ()
    restored = outcome(given("resume", "replicator-0"), after_it)
    assert after(after_it, restored).orders == Orders()
    assert outcome(given("resume", "replicator-1"), after_it).facts == ()


def test_orders_give_themselves_again() -> None:
    facts = (CopyingPaused("", -1, ADA), LanePinned("orders", 0, 1, ADA), HostDrained(FIRST, ADA))
    orders = Orders.of(facts)
    assert Orders.of(orders.facts()) == orders
    assert not orders.take(msgspec.structs.replace(facts[0], origin=Origin("bob", "", 1)))
    assert orders.paused[""].origin.by == "ada@host"


def test_an_operator_who_decides_on_a_record_learns_that_it_is_still_being_retried() -> None:
    here = view()._replace(retrying={TopicPartition("orders", 0): "RECORD_TOO_LARGE; it is sent again"})
    with pytest.raises(ConfigError, match=r"but is still being retried \(RECORD_TOO_LARGE; it is sent again\); try"):
        outcome(Order(verb="skip", name="orders-0", offset=5, by="ada@host"), here)
    with pytest.raises(ConfigError, match=r"it is not waiting for a decision$"):
        outcome(Order(verb="replay", name="orders-1", offset=5, by="ada@host"), here)
