"""What a process leaves behind, and what its children receive."""

import os
import resource
import subprocess
import sys

import pytest

from mirrord.runtime.process_hardening import bare_environment

CRASH = "import os, resource; from mirrord.runtime.process_hardening import forbid_core_dumps; forbid_core_dumps(); "


def limit_of(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_no_process_dumps_core() -> None:
    own = CRASH + "print(resource.getrlimit(resource.RLIMIT_CORE))"
    child = (
        CRASH
        + """
import subprocess, sys
print(subprocess.run([sys.executable, "-c", "import resource; print(resource.getrlimit(resource.RLIMIT_CORE))"],
    capture_output=True, text=True).stdout)"""
    )
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    expected = "(0, 0)" if hard == 0 else "(1, 1)"
    assert (limit_of(own), limit_of(child)) == (expected, expected)


def test_a_lower_limit_stays() -> None:
    program = "import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); "
    assert limit_of(program + CRASH + "print(resource.getrlimit(resource.RLIMIT_CORE))") == "(0, 0)"


def test_programs_without_a_need_for_secrets_do_not_receive_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EU_PASSWORD", "hunter2")
    found = bare_environment()
    assert "EU_PASSWORD" not in found
    assert found["PATH"] == os.environ["PATH"]
