"""OAUTHBEARER tokens."""

import base64
import json
import ssl
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme
from aiohttp import web
from aiohttp.test_utils import TestServer

from mirrord.config.security import Secret, Security
from mirrord.kafka.client.credentials import client_options
from mirrord.kafka.client.oauth_tokens import unsigned_token
from mirrord.model.errors import EnvironmentFault

BEARER = Security("SASL_SSL", "OAUTHBEARER", "client", Secret.parse("env:MIRRORD_TEST_SECRET"))


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRRORD_TEST_SECRET", "hunter2")


async def token_of(**more: object) -> str:
    provider: Any = client_options(msgspec.structs.replace(BEARER, **more)).get("sasl_oauth_token_provider")
    return await provider.token()


async def test_a_token_by_reference() -> None:
    assert await token_of() == "hunter2"


async def test_a_token_without_a_signature() -> None:
    token = await token_of(unsigned=True, password=None)
    header, claims, signature = token.split(".")
    assert signature == ""
    assert json.loads(base64.urlsafe_b64decode(header + "==")) == {"alg": "none"}
    assert json.loads(base64.urlsafe_b64decode(claims + "=="))["sub"] == "client"
    assert unsigned_token("client", 1.0) == unsigned_token("client", 1.0)
    # A broker's clock has whole milliseconds, so it may be behind ours by a part of one.
    assert unsigned_token("client", 1_795_291_402.7069) == unsigned_token("client", 1_795_291_402.706)


async def test_client_credentials_and_a_token_that_is_kept() -> None:
    asked: list[tuple[str, dict[str, str]]] = []

    async def give(request: web.Request) -> web.Response:
        asked.append(
            (request.headers["Authorization"], {name: str(value) for name, value in (await request.post()).items()})
        )
        return web.json_response({"access_token": f"token-{len(asked)}", "expires_in": 300})

    app = web.Application()
    app.router.add_post("/token", give)
    async with TestServer(app, host="127.0.0.1") as server:
        url = str(server.make_url("/token"))
        assert await token_of(token_url=url, scope="kafka") == "token-1"
        assert await token_of(token_url=url, scope="kafka") == "token-1"
        assert await token_of(token_url=url) == "token-2"
    basic = "Basic " + base64.b64encode(b"client:hunter2").decode()
    assert asked[0] == (basic, {"grant_type": "client_credentials", "scope": "kafka"})
    assert asked[1] == (basic, {"grant_type": "client_credentials"})


async def test_a_token_is_masked_and_expires() -> None:
    asked = 0

    async def give(_: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.Response(text=f'{{"access_token": "eyJ-{asked}-secret", "expires_in": Infinity}}')

    app = web.Application()
    app.router.add_post("/token", give)
    async with TestServer(app, host="127.0.0.1") as server:
        url = str(server.make_url("/token"))
        assert [await token_of(token_url=url) for _ in range(2)] == ["eyJ-1-secret", "eyJ-2-secret"]
    assert str(EnvironmentFault("the broker refuses eyJ-2-secret")) == "the broker refuses ***"


async def test_the_authorities_of_the_token_endpoint_are_its_own(tmp_path: Path) -> None:
    authority, other = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "login.pem")
    other.cert_pem.write_to_path(tmp_path / "brokers.pem")
    (tmp_path / "text.pem").write_text("no certificate")
    login, brokers = (Secret(f"file:{tmp_path / name}.pem") for name in ("login", "brokers"))

    async def give(_: web.Request) -> web.Response:
        return web.json_response({"access_token": "granted"})

    app, context = web.Application(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    app.router.add_post("/token", give)
    server = TestServer(app, host="127.0.0.1", scheme="https")
    await server.start_server(ssl=context)
    try:
        url = str(server.make_url("/token"))
        assert await token_of(token_url=url, token_ca=login, ca=brokers) == "granted"
        # The authorities of the brokers do not count here.
        for wrong in ({"ca": login}, {"token_ca": brokers}):
            with pytest.raises(EnvironmentFault, match=r"did not issue a token: \[SSL: .*certificate verify failed"):
                await token_of(token_url=url, **wrong)
        with pytest.raises(EnvironmentFault, match="TLS cannot use token_ca: "):
            await token_of(token_url=url, token_ca=Secret(f"file:{tmp_path / 'text.pem'}"))
    finally:
        await server.close()


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (401, "{}", "gives 'client' no token: 401 Unauthorized"),
        (200, "{}", "answered without an access_token"),
        (200, "[]", "answered without an access_token"),
        (200, "no json", "did not issue a token: "),
        (200, "[" * 100_000, "did not issue a token: "),
        (200, " " * (1 << 20) + "{}", "answers with more than 1048576 bytes"),
    ],
)
async def test_no_token(status: int, body: str, reason: str) -> None:
    async def refuse(_: web.Request) -> web.Response:
        return web.Response(status=status, text=body)

    app = web.Application()
    app.router.add_post("/token", refuse)
    async with TestServer(app, host="127.0.0.1") as server:
        with pytest.raises(EnvironmentFault, match=reason) as fault:
            await token_of(token_url=str(server.make_url("/token")))
        assert "hunter2" not in str(fault.value)
    with pytest.raises(EnvironmentFault, match="did not issue a token: "):
        await token_of(token_url="http://127.0.0.1:9/token")
