"""Which tests `make quick` selects."""

import pytest

from tests.quick import changed_files, modules, select

TEXTS = {
    "mirrord/__init__.py": "",
    "mirrord/low.py": "",
    "mirrord/high.py": "from mirrord import low",
    "mirrord/other.py": "",
    "tests/fixtures/page.py": "PAGE = 'docs/page.md'",
    "tests/unit/test_low.py": "import mirrord.low",
    "tests/unit/test_high.py": "def test() -> None:\n    from mirrord.high import x",
    "tests/unit/test_other.py": "from mirrord.other import y",
    "tests/unit/test_page.py": "from tests.fixtures.page import PAGE",
    "tests/unit/cli/conftest.py": "",
    "tests/unit/cli/test_verbs.py": "",
    "tests/kafka/test_daemon.py": "from mirrord.low import x",
}


@pytest.mark.parametrize(
    ("changed", "selected"),
    [
        ("mirrord/low.py", ["tests/unit/test_high.py", "tests/unit/test_low.py"]),
        ("mirrord/high.py", ["tests/unit/test_high.py"]),
        ("tests/unit/test_other.py", ["tests/unit/test_other.py"]),
        ("docs/page.md", ["tests/unit/test_page.py"]),
        ("tests/unit/cli/conftest.py", ["tests/unit/cli/test_verbs.py"]),
        ("mirrord/gone.py", []),
    ],
)
def test_what_a_change_selects(changed: str, selected: list[str]) -> None:
    assert select([changed], TEXTS) == selected


def test_the_project_itself() -> None:
    selected = select(["mirrord/model/runs.py"], modules())
    assert "tests/unit/replication/lane/test_rebuilding.py" in selected
    assert "tests/sim/test_sim.py" in selected


def test_a_revision_that_is_not_there_is_an_error() -> None:
    with pytest.raises(Exception, match="returned non-zero exit status"):
        changed_files("no-such-revision")
