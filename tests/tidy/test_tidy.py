"""Rules for the whole tree that no linter knows: sizes, no unused code, no paths of one machine."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("mirrord", "actors", "policies")
FILE_LINES = 500
VOCABULARY_LINES = 900
"""For a module that only defines the vocabulary of a subject, such as facts. A split by length hides some of it."""
VOCABULARIES = frozenset(
    {"mirrord/ledger/facts/core.py", "mirrord/model/metrics.py", "mirrord/replication/lane/signals.py"}
)
FUNCTION_LINES = 60
# Modules that nothing has to import, and why.
ENTRY_POINTS = {
    "mirrord.cli.main": "the console script",
    "mirrord.cli.reference_page": "writes docs/reference/cli.md",
    "mirrord.config.reference_page": "writes docs/reference/configuration.md",
    "mirrord.ledger.facts.reference_page": "writes docs/reference/facts.md",
    "mirrord.ledger.store.memory_log": "the twin of the Kafka log, for tests",
    "mirrord.jobs.kafka_batches": "a data source for any Spark session",
    "mirrord.lab.copy_checker": "with it demo, tests and bench prove that a copy is exact",
}
CROSS_PACKAGE_TESTS = {"test_bounded.py", "test_docs.py", "test_quick.py", "test_tiers.py"}
"""Files of tests/unit that belong to no package: limits of several packages, the documents, the test runner."""
# Split, so that this file does not contain what it looks for.
REGISTRY_HOSTS = tuple(
    f"{name}.{domain}"
    for name, domain in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("yarnpkg", "com"),
        ("maven", "org"),
        ("maven.apache", "org"),
        ("anaconda", "org"),
        ("crates", "io"),
        ("proxy.golang", "org"),
    )
)
REGISTRY_PATH = re.compile(r"\w+://\S+/(?:simple|maven2?)/")
MACHINE_PATH = re.compile(r"(?<![\w./$}-])/(?:root|home|Users|work|opt/wheels|tmp/[a-z]\w*)/")


def tracked_files() -> list[Path]:
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for name in names.split("\0") if name and (path := ROOT / name).is_file()]


def tracked_modules() -> dict[str, Path]:
    """The modules that the wheel holds, by dotted name; a package stands for its `__init__`."""
    modules: dict[str, Path] = {}
    for path in tracked_files():
        relative = path.relative_to(ROOT)
        if path.suffix == ".py" and relative.parts[0] in PACKAGES:
            parts = relative.with_suffix("").parts
            modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return modules


def texts() -> Iterator[tuple[str, str]]:
    for path in tracked_files():
        try:
            yield str(path.relative_to(ROOT)), path.read_text()
        except UnicodeDecodeError:
            continue  # a golden log or a picture


def test_files_are_short() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in python_files()}
    most = {name: VOCABULARY_LINES if name in VOCABULARIES else FILE_LINES for name in lengths}
    assert {name: lines for name, lines in lengths.items() if lines > most[name]} == {}
    assert sorted(VOCABULARIES - lengths.keys()) == []


def test_functions_are_short() -> None:
    long: list[str] = []
    for path in python_files():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES:
                    long.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {lines} lines")
    assert long == []


def python_files() -> list[Path]:
    return [path for path in tracked_files() if path.suffix == ".py"]


def test_no_module_is_unused() -> None:
    modules = tracked_modules()
    used = set(ENTRY_POINTS)
    for name, path in modules.items():
        used |= named_modules(path) - {name}
    packages = {name for name, path in modules.items() if path.name == "__init__.py"}
    assert sorted(set(modules) - packages - used) == []
    assert sorted(set(ENTRY_POINTS) - set(modules)) == []


def named_modules(path: Path) -> set[str]:
    """What a module imports; a dotted name in a string counts too, because it may be loaded by name."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names |= {node.value, node.value.partition(":")[0]}
    return names


def test_every_package_says_what_lives_there() -> None:
    modules = tracked_modules()
    homes = {name.rpartition(".")[0] for name in modules if "." in name}
    assert sorted(homes - set(modules)) == [], "folders without __init__.py"
    silent = [
        name
        for name, path in modules.items()
        if path.name == "__init__.py" and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert silent == []


def test_no_registry_is_named() -> None:
    found = [
        f"{name}: {match}"
        for name, text in texts()
        for match in [host for host in REGISTRY_HOSTS if host in text] + REGISTRY_PATH.findall(text)
    ]
    assert found == []


def test_no_path_of_a_machine() -> None:
    found = [f"{name}: {match}" for name, text in texts() for match in MACHINE_PATH.findall(text)]
    assert found == []


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-dev.lock", "requirements-build.lock"])
def test_locks_name_versions_and_hashes_only(name: str) -> None:
    text = (ROOT / name).read_text()
    lines = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]
    entry = re.compile(r"[\w.-]+(\[[\w,-]+\])?==[\w.!+]+( ; [^/@]+)? \\")
    checksum = re.compile(r"    --hash=sha256:[0-9a-f]{64}( \\)?")
    odd = [line for line in lines if not entry.fullmatch(line) and not checksum.fullmatch(line)]
    assert lines
    assert odd == []


def test_no_folder_is_a_drawer() -> None:
    """A folder of the product directly holds at most 30 modules, and at most a fifth of the product's lines."""
    lines = {path: len(path.read_text().splitlines()) for path in tracked_modules().values()}
    folders: dict[str, list[int]] = {}
    for path, count in lines.items():
        folders.setdefault(str(path.parent.relative_to(ROOT)), []).append(count)
    most = sum(lines.values()) / 5
    assert {name: len(counts) for name, counts in folders.items() if len(counts) > 30 or sum(counts) > most} == {}


def test_unit_tests_mirror_the_packages() -> None:
    """`tests/unit/X` holds the tests of `mirrord/X`, or of the top-level folder `X`, such as actors or bench."""
    folders = {folder for path in tracked_files() for folder in path.relative_to(ROOT).parents}
    tested = {folder.relative_to("tests/unit") for folder in folders if folder.is_relative_to("tests/unit")}
    product = {folder.relative_to("mirrord") for folder in folders if folder.is_relative_to("mirrord")}
    others = {folder for folder in folders if folder.parts[:1] in {("actors",), ("policies",), ("bench",), ("conf",)}}
    assert sorted(map(str, tested - product - others)) == []
    assert {path.name for path in (ROOT / "tests" / "unit").glob("test_*.py")} == CROSS_PACKAGE_TESTS
