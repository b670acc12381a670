"""Clusters that copy the same topics to each other under the same names: everything arrives once, nothing circles."""

import os
import random

import pytest

from mirrord.replication.lane.source import loop_detection
from mirrord.replication.lane.source.loop_detection import BatchOrigin, Origins
from tests.sim.mesh import SHAPE, Mesh
from tests.sim.truth import Violation

STORIES = int(os.environ.get("MIRRORD_SIM_STORIES", "2000")) // 40
STEPS = 200


def play(seed: int, clusters: int) -> Mesh:
    mesh = Mesh(seed, clusters)
    try:
        mesh.run(STEPS)
    except Exception as fault:
        trails = "\n".join(line for story in mesh.stories.values() for line in story.world.trail[-10:])
        raise AssertionError(f"seed {seed}, {clusters} clusters: {fault!r}\n{trails}") from fault
    return mesh


@pytest.mark.parametrize("clusters", [2, 3])
@pytest.mark.parametrize("part", range(4))
def test_every_cluster_holds_every_record_once(seed: int, part: int, clusters: int) -> None:
    chance = random.Random(f"{seed} mesh {part}")
    for _ in range(STORIES // 4 + 1):
        play(chance.randrange(1 << 40), clusters)


@pytest.mark.parametrize("clusters", [2, 3])
def test_a_mesh_that_has_settled_stays_settled(seed: int, clusters: int) -> None:
    """Skipped copies make no facts and no resume positions of their own: two ledgers do not feed each other."""
    mesh = play(seed, clusters)
    entries = mesh.facts()
    progress = [story.world.progress for story in mesh.stories.values()]
    for _ in range(500):
        for story in mesh.stories.values():
            choices = story.world.choices()
            if choices:
                story.world.do(story.rng.choice(choices))
            elif (later := story.world.next_time()) is not None:
                story.world.advance(later)
    assert mesh.facts() == entries
    assert [story.world.progress for story in mesh.stories.values()] == progress


def never(_origins: Origins, _header: object) -> BatchOrigin:
    """Treats every batch as a record of its own cluster."""
    return BatchOrigin.NATIVE


def at_once(judge: object) -> object:
    """Takes an unknown batch for no copy, without asking."""

    def judged(origins: Origins, header: object) -> BatchOrigin:
        return BatchOrigin.COPY if judge(origins, header) is BatchOrigin.COPY else BatchOrigin.NATIVE  # type: ignore[operator]

    return judged


@pytest.mark.parametrize("mutation", [never, at_once(Origins.judge)], ids=["never", "at once"])
def test_without_origin_checks_records_are_copied_in_circles(monkeypatch: pytest.MonkeyPatch, mutation: object) -> None:
    monkeypatch.setattr(loop_detection.Origins, "judge", mutation)

    def play_all() -> None:
        for seed in range(20):
            Mesh(seed, 2, SHAPE).run(STEPS)

    with pytest.raises(Violation, match="holds twice"):
        play_all()
