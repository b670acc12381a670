"""A proof is good for one request to one daemon, and shows nothing of the token."""

import pytest

from mirrord.control.command_proof import CommandProof, RequestLine, parse_proof, prove

TOKEN = "a token of many letters"
LINE = RequestLine("127.0.0.1:8182", "POST", "/order?dry_run")
PROOF = prove("ops", TOKEN, "12.ab.cd", LINE, b"body")


def test_a_proof_travels_in_a_header_and_holds() -> None:
    assert parse_proof(PROOF.header()) == PROOF
    assert PROOF.is_of(TOKEN, LINE)
    assert TOKEN not in PROOF.header()


@pytest.mark.parametrize(
    "line",
    [
        RequestLine("127.0.0.1:8183", "POST", "/order?dry_run"),
        RequestLine("127.0.0.1:8182", "GET", "/order?dry_run"),
        RequestLine("127.0.0.1:8182", "POST", "/order"),
        RequestLine("127.0.0.1:8182", "POST", "/stop"),
        RequestLine("127.0.0.1:8182", "POST", "//order?dry_run"),
        RequestLine("127.0.0.1:8182", "POST", "/ORDER?dry_run"),
        RequestLine("127.0.0.1:8182", "POST", "/%6frder?dry_run"),
        RequestLine("127.0.0.1:8182P", "OST", "/order?dry_run"),
    ],
)
def test_a_proof_holds_for_no_other_request(line: RequestLine) -> None:
    assert not PROOF.is_of(TOKEN, line)


def test_a_proof_holds_for_no_other_token_nonce_or_body() -> None:
    assert not PROOF.is_of("another token of many letters", LINE)
    for changed in (
        CommandProof(PROOF.name, "13.ab.cd", PROOF.body, PROOF.proof),
        CommandProof(PROOF.name, PROOF.nonce, "0" * 64, PROOF.proof),
        CommandProof(PROOF.name, PROOF.nonce, PROOF.body, "0" * 64),
    ):
        assert not changed.is_of(TOKEN, LINE)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Mirrord",
        "Mirrord name=a, nonce=b, body=c, proof=d",
        PROOF.header() + " ",
        PROOF.header() + "\n",
        PROOF.header().replace("ops", "o ps"),
        PROOF.header().replace("ops", "\u00f6ps"),
        PROOF.header().replace("12.ab", "12.ab" * 200),
        PROOF.header().lower(),
    ],
)
def test_nothing_else_is_a_proof(header: str) -> None:
    assert parse_proof(header) is None
