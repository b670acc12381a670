"""The table `[flows.recovery]`."""

from pathlib import Path

import pytest

from mirrord.config.loader import load_file
from mirrord.config.policy_checks import Unjudged
from mirrord.config.recovery import RecoveryConfig, shown_hook
from mirrord.model.errors import ConfigError

CONF = """
[clusters.eu]
bootstrap = "eu-1:9092"
[clusters.us]
bootstrap = "us-1:9092"
[[flows]]
name = "eu-us"
from = "eu"
to = "us"
topics = ["orders"]
[flows.recovery]
"""


def loaded(folder: Path, text: str) -> RecoveryConfig:
    path = folder / "conf.toml"
    path.write_text(CONF + text)
    return load_file(str(path), Unjudged()).config.flows[0].recovery


def test_every_key(tmp_path: Path) -> None:
    text = 'before = ["/bin/true"]\ngrant = ["User:app"]\nafter = ["https://example.com/hook"]\ntimeout = "5s"'
    assert loaded(tmp_path, text) == RecoveryConfig(("/bin/true",), ("User:app",), ("https://example.com/hook",), 5_000)
    assert loaded(tmp_path, "") == RecoveryConfig()


def test_a_password_in_a_url_is_not_shown(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        loaded(tmp_path, 'after = ["https://ada:swordfish@example.com/"]')
    assert "swordfish" not in str(error.value)
    assert shown_hook("https://example.com/T0/B0?token=swordfish") == "https://example.com"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('before = ["stop-producers"]', "the absolute path of a program, or a URL"),
        ('after = ["ftp://example.com"]', "the absolute path of a program, or a URL"),
        ('after = ["https://"]', "with a host and without a password"),
        ('after = ["https://ada:secret@example.com/"]', "with a host and without a password"),
        ('grant = ["app"]', "a principal with its type, such as User:app"),
        ('timeout = "2h"', "1h"),
        ("aftr = []", 'did you mean "after"'),
    ],
)
def test_errors_name_what_is_allowed(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        loaded(tmp_path, text)
