"""`mirrord start --upgrade` on real brokers: another process takes a daemon's place while records flow."""

from pathlib import Path

import pytest

from mirrord.runtime.build_info import program
from tests.fixtures.daemon import SECONDS, Daemon, Load, all_ends, assert_same, conf, mirrord, signing, unique
from tests.fixtures.former import FORMER_LAYOUT, LEDGER_9, former_checkout
from tests.fixtures.lab import LabPair
from tests.fixtures.mirror import create_topic


@pytest.mark.usefixtures("own_ledgers")
def test_another_process_takes_over_and_nothing_is_lost_or_doubled(lab_pair: LabPair, tmp_path: Path) -> None:
    """The ledger is signed: both daemons, their replicators and `ledger show` have the key."""
    source, target = lab_pair.source, lab_pair.target
    topic = create_topic(source, unique("orders"), 3)
    path = conf(tmp_path, source, target, topic, flow=unique("upgrade"), lease_ttl="10s", more=signing(tmp_path))
    with Daemon(path, "--upgrade") as lonely:
        assert lonely.process.wait(SECONDS) == 1
        assert "no daemon is running these flows" in lonely.output
    with Load(source, topic, 3).running() as load, Daemon(path) as old:
        old.until(lambda: (old.flow().totals.copied_records or 0) > 0)
        with Daemon(path, "--upgrade") as new:
            assert old.process.wait(2 * SECONDS) == 0, old.output
            assert f"is replaced by mirrord {program()} at {new.http()}\n" in old.output
            assert f"takes over from mirrord {program()} at {old.http()}, the same version\n" in new.output
            load.wait_for(2_000)
            # In the first moments no replicator has reported yet.
            new.until(lambda: new.flow().totals.lanes == {"copying": 3})
            flow = new.flow()
            assert (flow.state, flow.note) == ("running", "")
            assert flow.lease is not None
            assert flow.lease.program == program()
            shown = mirrord("ledger", "show", path).stdout
            assert sum(" taken by mirrord" in line and "lease" in line for line in shown.splitlines()) == 1
            assert "continued by mirrord" in shown
            assert new.stop() == 0
    with Daemon(path) as last:
        last.until_copied(all_ends(source, topic))
        assert last.stop() == 0
    assert_same(source, target, [topic], load.written)


@pytest.mark.parametrize("commit", [LEDGER_9, FORMER_LAYOUT])
def test_a_daemon_of_a_former_version_is_replaced_while_data_flow(
    lab_pair: LabPair, tmp_path: Path, commit: str
) -> None:
    """The old replicators read the ledger until their last lane has moved, so they must understand it until then. Later
    an old daemon either still runs, or stops with one line."""
    source, target = lab_pair.source, lab_pair.target
    former = former_checkout(commit, tmp_path / "former")
    topic = create_topic(source, unique("orders"), 3)
    path = conf(tmp_path, source, target, topic, flow=unique("former"), lease_ttl="10s")
    with Load(source, topic, 3).running() as load, Daemon(path, checkout=former) as old:
        old.until(lambda: (old.flow().totals.copied_records or 0) > 0)
        with Daemon(path, "--upgrade") as new:
            assert old.process.wait(2 * SECONDS) == 0, old.output
            assert not [event for event in old.events() if event["level"] in {"error", "critical"}]
            load.wait_for(2_000)
            new.until(lambda: new.flow().totals.lanes == {"copying": 3})
            assert new.stop() == 0
    with Daemon(path) as last:
        last.until_copied(all_ends(source, topic))
        assert last.stop() == 0
    assert_same(source, target, [topic], load.written)
    with Daemon(path, checkout=former) as older:
        older.until(lambda: older.flow().state == "running" or "this program knows versions 1 to 9" in older.output)
