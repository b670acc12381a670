"""The page of facts, and the catalogue from which it is generated."""

from pathlib import Path
from typing import get_args

from mirrord.ledger.facts import reference_page
from mirrord.ledger.facts.core import AnyFact, Entry

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "facts.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == reference_page.page(), (
        "python -m mirrord.ledger.facts.reference_page > docs/reference/facts.md"
    )


def test_every_fact_is_in_one_section() -> None:
    listed = [fact for _, _, union in reference_page.SECTIONS for fact in reference_page.facts(union)]
    assert len(listed) == len(set(listed))
    assert set(listed) == set(get_args(AnyFact))


def test_every_fact_has_an_effect() -> None:
    assert set(reference_page.EFFECTS) == set(get_args(AnyFact))


def test_every_struct_and_every_field_is_documented() -> None:
    for struct in (Entry, *get_args(AnyFact), *reference_page.parts()):
        assert (struct.__doc__ or "").strip(), struct
        assert all(reference_page.meanings(struct).values()), struct


def test_no_shared_meaning_is_unused() -> None:
    used = {
        name
        for struct in (Entry, *get_args(AnyFact), *reference_page.parts())
        for name, meaning in reference_page.meanings(struct).items()
        if meaning == reference_page.SHARED.get(name)
    }
    assert used == set(reference_page.SHARED)
