"""The report of an audit: one self-contained file, in which no data of a cluster is taken for HTML."""

from html.parser import HTMLParser
from pathlib import Path

import pytest

from mirrord.audit.atomic_file import write_whole
from mirrord.audit.rules.html_report import MOST_SERIES, AuditPage, FoundThen, ProvenPoint, page
from mirrord.audit.rules.results import Difference, LaneDifference, LaneSummary
from mirrord.model.errors import EnvironmentFault

EVIL = "<script>alert('&\"')</script>"
VOID = {"meta", "line", "circle", "rect"}


class Balanced(HTMLParser):
    """Every tag is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        assert not any(name in {"src", "href"} or name.startswith("on") for name, _ in attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert attrs
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def lane(number: int, differences: dict[str, int]) -> LaneSummary:
    return LaneSummary(
        flow=EVIL,
        topic=EVIL,
        partition=number,
        records=100,
        equal=90,
        differences=differences,
        explained={EVIL: 3},
        proven_to=50,
        proven_ms=1 << 60,
        read_bytes=5,
        skipped=EVIL,
    )


def read(text: str) -> list[str]:
    parser = Balanced()
    parser.feed(text)
    parser.close()
    assert parser.open == []
    assert "script" not in parser.seen
    assert "<script" not in text
    return parser.seen


def test_nothing_of_a_cluster_is_html() -> None:
    text = page(
        AuditPage(
            at_ms=1_700_000_000_000,
            program=EVIL,
            level=EVIL,
            lanes=[lane(0, {EVIL: 2, "missing": 1}), lane(1, {})],
            differences=[LaneDifference(EVIL, EVIL, 0, EVIL, Difference("missing", 5, None, 2))] * 1_001,
            proven=[
                ProvenPoint(EVIL, f"{EVIL}-{number % 20}", 1_700_000_000_000 + number, number, 1 << number % 62)
                for number in range(100)
            ],
            found=[FoundThen(5, EVIL, 7, {EVIL: 1})],
        )
    )
    tags = read(text)
    assert tags.count("polyline") == 3 * MOST_SERIES
    assert "and 1 more" in text
    assert "5 to 6" in text


def test_the_partitions_that_lag_most_are_plotted() -> None:
    audit_at_ms = 1_700_000_000_000
    proven = [ProvenPoint("eu-us", f"orders-{at:02}", audit_at_ms, 1_000, audit_at_ms - 1_000 * at) for at in range(20)]
    text = page(AuditPage(at_ms=audit_at_ms, program="0.1.0", level="digest", lanes=(), differences=(), proven=proven))
    for title in ("Proven up to: the highest record time", "Lag: from that record time to the audit"):
        card = next(part for part in text.split("<section>") if title in part)
        plotted = [at for at in range(20) if f"orders-{at:02}" in card]
        assert plotted == [*range(20 - MOST_SERIES, 20)], title


@pytest.mark.parametrize(
    "proven", [[], [ProvenPoint("eu-us", "orders-0", 5, 9, -1)], [ProvenPoint("eu-us", "orders-0", 5, 9, 5)] * 2]
)
def test_little_is_known(proven: list[ProvenPoint]) -> None:
    text = page(AuditPage(at_ms=0, program="0.1.0", level="digest", lanes=(), differences=(), proven=proven))
    assert "no difference" in text
    plots = {0: 0, 1: 1, 2: 3}[len(proven)]
    assert read(text).count("polyline") == plots, "without a record time there is an offset alone"


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    write_whole(tmp_path / "reports" / "audit.html", "text")
    assert [each.name for each in (tmp_path / "reports").iterdir()] == ["audit.html"]
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentFault, match="cannot be written"):
        write_whole(tmp_path / "file" / "audit.html", "text")
