"""The licences of the packages that mirrord needs permit what its own licence (Apache-2.0) permits."""

import re
from importlib import metadata

from tests.tidy.test_tidy import ROOT

ALLOWED = re.compile(
    r"""(
    Apache(\ License)?,?(\ Software\ License)?([\ -]+(Version\ )?2(\.0)?)?
    | MIT(\ License|-0)?
    | ((2|3)-Clause\ )?BSD(\ License|-2-Clause|-3-Clause)?
    | PSF-2\.0 | Python\ Software\ Foundation\ License
    # The licence of certifi covers its own files only, which mirrord does not change.
    | MPL-2\.0
    )""",
    re.VERBOSE,
)


def licences(name: str) -> set[str]:
    """The licences that a package states: as an expression, or as text, or as classifiers."""
    found = metadata.metadata(name)
    text = next((found[field] for field in ("License-Expression", "License") if field in found), "")
    if text and "\n" not in text:
        return set(re.split(r" (?:AND|OR) ", text))
    classifiers = [each.split(" :: ")[-1] for each in found.get_all("Classifier", []) if each.startswith("License")]
    return set(classifiers)


def test_the_licences_of_locked_packages() -> None:
    names = re.findall(r"^([\w.-]+)(?:\[[\w,-]+\])?==", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert len(names) > 50
    # Packages for other systems or other versions of Python are not installed.
    installed = {each.metadata["Name"].lower().replace("_", "-").replace(".", "-") for each in metadata.distributions()}
    found = {name: licences(name) for name in names if name in installed}
    assert len(found) > len(names) - 8
    odd = {name: each for name, each in found.items() if not each or not all(map(ALLOWED.fullmatch, each))}
    assert odd == {}
