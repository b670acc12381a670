"""Alert rules and dashboard name metrics that exist, and every alert links to its remedy."""

import importlib
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mirrord.model.metrics import CATALOGUE

ROOT = Path(__file__).parents[3]
RULES = ROOT / "conf" / "prometheus" / "mirrord.rules.yml"
RULES_TEST = ROOT / "tests" / "fixtures" / "mirrord.rules.test.yml"
BOARD = ROOT / "conf" / "grafana" / "mirrord.json"
RUNBOOK = ROOT / "docs" / "how-to" / "operate.md"
# It comes with Ray, without types.
yaml: Any = importlib.import_module("yaml")
KNOWN = {name: metric for metric in CATALOGUE for name in metric.samples}


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def metrics_of(expression: str) -> set[str]:
    return set(re.findall(r"\bmirrord\w*", expression))


def test_every_metric_of_a_rule_is_in_the_catalogue() -> None:
    for rule in rules():
        assert metrics_of(rule["expr"]), rule["alert"]
        assert metrics_of(rule["expr"]) <= set(KNOWN), rule["alert"]


def test_rules_ask_for_labels_that_there_are() -> None:
    for expression in [rule["expr"] for rule in rules()] + expressions_of_the_board():
        for name, braces in re.findall(r"\b(mirrord\w*)\{([^}]*)\}", expression):
            labels = set(re.findall(r"(\w+)\s*[=!]~?", braces))
            assert labels <= set(KNOWN[name].labels), expression


def test_every_alert_has_its_entry_in_the_runbook() -> None:
    headings = re.findall(r"^## (\w+)$", RUNBOOK.read_text(), re.MULTILINE)
    assert headings == [rule["alert"] for rule in rules()]
    for rule in rules():
        assert rule["annotations"]["runbook"] == f"docs/how-to/operate.md#{rule['alert'].lower()}"
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"]
        assert rule["labels"]["severity"] in {"warning", "critical"}


def test_there_are_twelve_alerts() -> None:
    assert len(rules()) == 12


def expressions_of_the_board() -> list[str]:
    board = json.loads(BOARD.read_text())
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]]


def test_every_metric_of_the_board_is_in_the_catalogue() -> None:
    expressions = expressions_of_the_board()
    assert len(expressions) > 15
    for expression in expressions:
        assert metrics_of(expression), expression
        assert metrics_of(expression) <= set(KNOWN), expression


def test_panels_do_not_lie_on_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(BOARD.read_text())["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells


@pytest.mark.parametrize("arguments", [("check", "rules", str(RULES)), ("test", "rules", RULES_TEST.name)])
def test_promtool_agrees(arguments: tuple[str, ...]) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not on the PATH (Debian's package prometheus has it)")
    done = subprocess.run(
        [promtool, *arguments], cwd=RULES_TEST.parent, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
