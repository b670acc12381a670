"""A public type name is defined in one module of the product, so that it has one meaning."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("mirrord", "actors", "policies")


def sources() -> dict[str, str]:
    """Return the text of each module of the product, by its path."""
    return {
        str(path.relative_to(ROOT)): path.read_text()
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
    }


def type_names(text: str) -> Iterator[str]:
    """Yield the public classes and type aliases at the top level of a module, also those under `if`.

    A constant, and a type variable such as `T`, has no lowercase letter.
    """
    for name in _assigned(ast.parse(text).body):
        if name[0].isupper() and name != name.upper():
            yield name


def _assigned(body: Iterable[ast.stmt]) -> Iterator[str]:
    for statement in body:
        match statement:
            case ast.ClassDef(name=name):
                yield name
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.If(body=then, orelse=otherwise):
                yield from _assigned((*then, *otherwise))
            case _:
                pass


def defined_twice(modules: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the modules of each type name that more than one module defines."""
    found: dict[str, list[str]] = defaultdict(list)
    for module, text in modules.items():
        for name in dict.fromkeys(type_names(text)):
            found[name].append(module)
    return {name: where for name, where in sorted(found.items()) if len(where) > 1}


def test_no_type_name_is_defined_twice() -> None:
    assert defined_twice(sources()) == {}


def test_a_second_definition_is_found() -> None:
    modules = {
        "a.py": "class Kind: ...\nSide = str\nT = 1\n_Own = int\nLIMIT_MS = 5\nclass Alone: ...",
        "b.py": "Kind: type = int\nif True:\n    Side = int\nT = 2\n_Own = str\nLIMIT_MS = 6\ndef Alone(): ...",
        "c.py": "from a import Kind\nclass Outer:\n    class Alone: ...",
    }
    assert defined_twice(modules) == {"Kind": ["a.py", "b.py"], "Side": ["a.py", "b.py"]}
