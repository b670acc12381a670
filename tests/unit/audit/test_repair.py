"""What is to be repaired according to the results of an audit, and the command without results."""

from pathlib import Path

import pytest

from mirrord.audit.repair import Damage, damages
from mirrord.audit.result_files import RangeKey
from mirrord.audit.rules.results import Compared, Difference, RangeResult
from mirrord.cli.main import main
from mirrord.model.names import LaneId

LANE = LaneId("lane")


def results(*found: Difference, flow: str = "f", first: int = 0) -> dict[RangeKey, RangeResult]:
    result = RangeResult(lane=LANE, first=first, end=first + 10, by="records", compared=Compared(0, found))
    return {(flow, LANE, first, first + 10, "map"): result}


def test_what_the_target_lacks_is_repaired_and_nothing_else() -> None:
    found = results(
        Difference("missing", 3, 3, 2),
        Difference("altered", 7, 7),
        Difference("missing", None, 9),
        Difference("foreign", None, 10),
        Difference("duplicated", 8, 11),
    )
    assert damages(found) == [Damage("f", LANE, 3, 5, "missing"), Damage("f", LANE, 7, 8, "altered")]


def test_ranges_are_joined_and_none_comes_twice() -> None:
    found = results(Difference("missing", 3, 3, 7)) | results(Difference("missing", 10, 10, 5), first=10)
    found |= results(Difference("altered", 12, 12, 6), Difference("altered", 4, 4), first=20)
    found |= results(Difference("missing", 3, 3), flow="g")
    assert damages(found) == [
        Damage("f", LANE, 3, 15, "missing"),
        Damage("f", LANE, 15, 18, "altered"),
        Damage("g", LANE, 3, 4, "missing"),
    ]


def test_to_plan_and_to_do_it_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["repair", "results", "conf.toml", "--plan", "--apply"])
    assert ended.value.code == 2
    assert "not allowed with argument --plan" in capsys.readouterr().err


@pytest.mark.parametrize(("is_there", "line"), [(False, "is not the folder of an audit"), (True, "holds no results")])
def test_without_results_there_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], is_there: bool, line: str
) -> None:
    conf = tmp_path / "conf.toml"
    clusters = "".join(f'[clusters.{name}]\nbootstrap = "127.0.0.1:1"\n' for name in ("eu", "us"))
    conf.write_text(f'{clusters}[[flows]]\nfrom = "eu"\nto = "us"\ntopics = ["a"]\n')
    folder = tmp_path / "results"
    if is_there:
        folder.mkdir()
    assert main(["repair", str(folder), str(conf)]) == 2
    assert line in capsys.readouterr().err
