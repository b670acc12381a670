"""Known secrets are masked in texts."""

import json
from urllib.parse import quote

import pytest

from mirrord.config.security import Secret
from mirrord.model import known_secrets
from mirrord.model.errors import EnvironmentFault, MirrordError, internal_error
from mirrord.model.known_secrets import mask, remember
from policies.class_loading import line_of

SECRET = 'p"ä ss/wörd\\9'


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_secrets, "_known", {})


@pytest.mark.parametrize("form", [SECRET, json.dumps(SECRET), repr(SECRET), quote(SECRET), repr(ValueError(SECRET))])
def test_each_form_of_a_secret_is_masked(form: str) -> None:
    remember(SECRET)
    masked = mask(f"before {form} after")
    assert "***" in masked
    assert "rd" not in masked.replace("mirrord", "")
    assert masked.startswith("before ")
    assert masked.endswith(" after")


def test_a_secret_is_known_once_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EU_PASSWORD", SECRET)
    assert SECRET in mask(SECRET)
    Secret.parse("env:EU_PASSWORD").resolve()
    assert mask(SECRET) == "***"


@pytest.mark.parametrize("kind", [MirrordError, EnvironmentFault])
def test_errors_do_not_show_it(kind: type[MirrordError]) -> None:
    remember(SECRET)
    assert str(kind(f"login failed with {SECRET}")) == "login failed with ***"
    assert SECRET not in internal_error(ValueError(SECRET))
    assert line_of(ValueError(f"bad key {SECRET}")) == "ValueError: bad key ***"


def test_lines_of_a_key_are_secrets_but_not_its_frame() -> None:
    remember("-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg\n-----END PRIVATE KEY-----\n")
    assert mask("no MIIEvQIBADANBg here") == "no *** here"
    assert mask("-----BEGIN PRIVATE KEY-----") == "-----BEGIN PRIVATE KEY-----"


def test_a_short_secret_masks_no_other_words() -> None:
    remember("abc")
    assert mask("abcdef") == "abcdef"


@pytest.mark.parametrize("order", [("secret-one", "secret-one-two"), ("secret-one-two", "secret-one")])
def test_a_secret_that_begins_with_another_one_is_masked_completely(order: tuple[str, str]) -> None:
    for secret in order:
        remember(secret)
    assert mask("secret-one-two, secret-one") == "***, ***"


def test_certificates_are_no_secrets() -> None:
    certificate = "-----BEGIN CERTIFICATE-----\nMIIBIjANBgkqhkiG9w0B\n-----END CERTIFICATE-----\n"
    remember(certificate * 1_000)
    assert known_secrets._known == {}  # pyright: ignore[reportPrivateUsage]
    remember(f"{certificate}-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg\n-----END PRIVATE KEY-----\n")
    assert mask("MIIBIjANBgkqhkiG9w0B MIIEvQIBADANBg") == "MIIBIjANBgkqhkiG9w0B ***"


def test_the_number_of_known_secrets_is_limited() -> None:
    for number in range(2 * known_secrets.MOST_FORMS):
        remember("password")  # it is read again for each connection
        remember(f"token-{number:06}")
    assert len(known_secrets._known) == known_secrets.MOST_FORMS  # pyright: ignore[reportPrivateUsage]
    assert mask(f"password token-{2 * known_secrets.MOST_FORMS - 1:06}") == "*** ***"
