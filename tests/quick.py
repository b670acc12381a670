"""Runs the pure tests that a change can affect: `make quick`, or `python -m tests.quick [--since REVISION]`.

A change is what differs from a revision in the working tree: from HEAD if anything is uncommitted, else from HEAD~1.
A test can be affected if its module, or any module that it imports directly or indirectly, has changed. A changed file
that is not Python affects the tests whose text names it. The tidy tests always run: they look at every file.
"""

import argparse
import ast
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
PURE = ("unit", "property", "scenario", "sim")
SOURCES = ("mirrord", "actors", "policies", "bench", "tests")


def main(arguments: list[str]) -> int:
    """Run the selected tests and return the exit code of pytest."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.quick", description=(__doc__ or "").split("\n", maxsplit=1)[0]
    )
    parser.add_argument("--since", help="the revision to compare with")
    parser.add_argument("--list", action="store_true", help="print the selected test files and run nothing")
    asked = parser.parse_args(arguments)
    changed = changed_files(asked.since)
    selected = [*select(changed, modules()), "tests/tidy"]
    if asked.list:
        print(*selected, sep="\n")
        return 0
    print(f"{len(changed)} changed files, {len(selected) - 1} test files that they can affect", flush=True)
    return subprocess.call([sys.executable, "-m", "pytest", "-q", "-n", "2", *selected], cwd=ROOT, env=os.environ)


def changed_files(since: str | None) -> set[str]:
    """Return the paths that differ from a revision, and those that git does not know yet."""
    uncommitted = _git("status", "--porcelain", "--no-renames", "--untracked-files=all")
    found = {line[3:] for line in uncommitted}
    revision = since or ("HEAD" if found else "HEAD~1")
    return found | set(_git("diff", "--name-only", "--no-renames", revision))


def _git(*arguments: str) -> list[str]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def modules() -> dict[str, str]:
    """Return the texts of all Python files by their paths."""
    paths = (path for source in SOURCES for path in (ROOT / source).rglob("*.py"))
    return {str(path.relative_to(ROOT)): path.read_text() for path in paths}


def select(changed: Iterable[str], texts: Mapping[str, str]) -> list[str]:
    """Return the pure test files that the changed paths can affect."""
    imports = {path: set(imported(path, text, texts)) for path, text in texts.items()}
    affected = {path for path in changed if path.endswith(".py")}
    data = {Path(path).name for path in changed if not path.endswith(".py")}
    affected |= {path for path, text in texts.items() if any(name in text for name in data)}
    while more := {path for path, uses in imports.items() if path not in affected and uses & affected}:
        affected |= more
    # A conftest.py affects the tests of its folder, although none imports it.
    folders = tuple(f"{Path(path).parent}/" for path in affected if Path(path).name == "conftest.py")
    affected |= {path for path in texts if folders and path.startswith(folders)}
    return sorted(path for path in affected if path in texts and _is_pure_test(path))


def _is_pure_test(path: str) -> bool:
    parts = Path(path).parts
    return parts[0] == "tests" and len(parts) > 2 and parts[1] in PURE and parts[-1].startswith("test_")


def imported(path: str, text: str, known: Mapping[str, str]) -> Iterable[str]:
    """Yield the paths of the modules that a file imports, anywhere in it. The packages of a module count as well."""
    for node in ast.walk(ast.parse(text, path)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            parts = name.split(".")
            for depth in range(1, len(parts) + 1):
                stem = "/".join(parts[:depth])
                yield from (each for each in (f"{stem}.py", f"{stem}/__init__.py") if each in known)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
