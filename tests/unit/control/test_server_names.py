"""Which values of the header Host name this server."""

import pytest

from mirrord.config.value_parsers import HostPort
from mirrord.control.server_names import ServerNames

NAMES = ServerNames.of([HostPort("0.0.0.0", 8182), HostPort("mirror-1", 8182)], ["Mirror.Example.com:443", "alias"])
HERE = HostPort("10.0.0.5", 8182)


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:9000",
        "127.0.0.1:8182",
        "[::1]:8182",
        "mirror-1:8182",
        "MIRROR-1.:8182",
        "mirror.example.com",
        "alias:1",
        "10.0.0.5:8182",
        "10.0.0.5",
    ],
)
def test_names_of_this_server(host: str) -> None:
    assert NAMES.accept(host, HERE)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "evil.example:8182",
        "127.0.0.1.evil.example:8182",
        "localhost.evil.example",
        "evil.example#localhost",
        "localhost/",
        "localhost:8182, evil.example",
        "user@localhost",
        "10.0.0.6:8182",
        "2130706433",
        "[::1",
        "localhost:port",
        "\u2113ocalhost",
    ],
)
def test_names_of_others(host: str) -> None:
    assert not NAMES.accept(host, HERE)
    assert not NAMES.mean(host, HERE, 80)


@pytest.mark.parametrize(
    ("host", "means"),
    [
        ("10.0.0.5:8182", True),
        ("localhost:8182", False),
        ("127.0.0.1:8182", False),
        ("[::1]:8182", False),
        ("127.0.0.2:8182", False),
        ("0.0.0.0:8182", False),
        ("mirror.example.com:443", True),
        ("alias:443", True),
        ("mirror-1:8182", True),
        ("mirror-1:443", False),
        ("10.0.0.5:443", False),
        ("localhost:9999", False),
        ("10.0.0.5:9999", False),
        ("localhost", False),
    ],
)
def test_a_proof_for_another_port_or_machine_is_for_another_server(host: str, means: bool) -> None:
    assert NAMES.mean(host, HERE, 80) is means


@pytest.mark.parametrize("host", ["localhost:443", "127.0.0.1:443", "[::1]:443", "0.0.0.0:443"])
def test_the_port_of_a_proxy_is_not_one_of_this_machine(host: str) -> None:
    """On this machine, another user can listen on that port, and pass on a proof that was made for it."""
    assert not NAMES.mean(host, HostPort("127.0.0.1", 8182), 80)


def test_an_address_of_version_6_may_contain_one_of_version_4() -> None:
    assert NAMES.accept("10.0.0.5:8182", HostPort("::ffff:10.0.0.5", 8182))


@pytest.mark.parametrize("here", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_on_loopback_a_proof_for_this_machine_is_for_this_server(here: str) -> None:
    for host in ("localhost:8182", "127.0.0.1:8182", "[::1]:8182", "0.0.0.0:8182"):
        assert NAMES.mean(host, HostPort(here, 8182), 80)


def test_the_configuration_may_name_localhost() -> None:
    """For example, if a port of a container is reached as one of its host."""
    named = ServerNames.of([HostPort("0.0.0.0", 8182)], ["localhost:9000", "[::1]"])
    assert named.mean("localhost:9000", HERE, 80)
    assert named.mean("[::1]:8182", HERE, 80)
    assert not named.mean("127.0.0.1:9000", HERE, 80)
