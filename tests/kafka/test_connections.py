"""Connections to real brokers: each way to connect, what is reported if there is no connection, and their end."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from mirrord.config.security import Mechanism, Security
from mirrord.kafka.client.connection import AuthenticationFailed, Connection, TlsFailed, Unreachable
from mirrord.kafka.client.credentials import client_options
from mirrord.kafka.client.request_pipeline import ConnectionLost
from mirrord.kafka.protocol import metadata
from mirrord.kafka.protocol.api_versions import FETCH
from mirrord.kafka.protocol.fetch_session import FetchSession
from mirrord.kafka.protocol.record_batch import intact, patch, scan
from mirrord.lab.cluster import Cluster
from tests.fixtures.lab import LabPair
from tests.fixtures.wire import (
    SECONDS,
    describe,
    fetch_once,
    linked,
    new_producer,
    open_to,
    produce_one,
    security_in,
    security_of,
    topic_in,
    topic_key,
)


async def carries_batches(cluster: Cluster, connection: Connection) -> None:
    """A batch written by aiokafka, fetched and produced over the connection, is read by aiokafka."""
    source, target = await topic_in(cluster, connection), await topic_in(cluster, connection)
    assert source.name is not None
    assert target.name is not None
    options = client_options(security_of(cluster))
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, **options)
    await producer.start()
    # Large enough for a frame with a buffer of its own.
    sent = [await producer.send(source.name, bytes(1000) + b"%d" % number) for number in range(300)]
    await producer.stop()
    assert [(await record).offset for record in sent] == list(range(300))
    for batch in await fetch_all(connection, source, 300):
        answer = await produce_one(connection, target, 0, batch)
        assert (answer.error, answer.message) == (0, "")
    consumer = AIOKafkaConsumer(
        target.name, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", **options
    )
    await consumer.start()
    read = [await asyncio.wait_for(consumer.getone(), SECONDS) for _ in range(300)]
    await consumer.stop()
    assert [record.value for record in read] == [bytes(1000) + b"%d" % number for number in range(300)]


async def fetch_all(connection: Connection, topic: metadata.TopicMetadata, records: int) -> list[bytes]:
    """All batches of partition 0, patched for a new producer."""
    identity = await new_producer(connection)
    session, offset, batches = FetchSession(), 0, list[bytes]()
    while offset < records:
        response, frame = await fetch_once(connection, session, {(topic_key(connection, FETCH, topic), 0): offset})
        (answer,) = response.partitions
        assert answer.error == 0
        found, _ = scan(frame.buffer, answer.records_start, answer.records_end)
        for start, end, _, last, _, _, header in found:
            patch(frame.buffer, start, header, identity.producer_id, identity.producer_epoch, offset)
            assert intact(frame.buffer, start, end)
            batches.append(bytes(frame.buffer[start:end]))
            offset = last + 1
    return batches


async def test_plaintext(lab_pair: LabPair) -> None:
    async with linked(lab_pair.source) as connection:
        await carries_batches(lab_pair.source, connection)


async def test_mutual_tls(lab_tls: Cluster) -> None:
    async with linked(lab_tls) as connection:
        await carries_batches(lab_tls, connection)
    for limits in ({"tls_min": "1.3"}, {"ciphers": ("ECDHE-ECDSA-AES256-GCM-SHA384",)}):
        connection = await open_to(lab_tls, msgspec.structs.replace(security_of(lab_tls), **limits))
        await describe(connection)
        connection.close()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
async def test_sasl_over_tls(lab_sasl: Cluster, mechanism: Mechanism) -> None:
    connection = await open_to(lab_sasl, security_of(lab_sasl, mechanism=mechanism))
    await carries_batches(lab_sasl, connection)
    connection.close()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_wrong_password_is_reported(lab_sasl: Cluster, mechanism: Mechanism, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("sesame")
    wrong = security_in(lab_sasl.security("admin", mechanism) | {"password": f"file:{tmp_path / 'password'}"})
    with pytest.raises(AuthenticationFailed, match=rf"refuses 'admin' by {mechanism}: .*[iI]nvalid"):
        await open_to(lab_sasl, wrong)


async def test_a_worthless_token_is_reported(lab_sasl: Cluster, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("not.a.token")
    token = {"password": f"file:{tmp_path / 'token'}"}
    wrong = security_in(lab_sasl.security("admin", "OAUTHBEARER") | token)
    with pytest.raises(AuthenticationFailed, match=r"refuses the token by OAUTHBEARER: .*token"):
        await open_to(lab_sasl, wrong)


async def test_the_wrong_protocol_is_reported(lab_pair: LabPair, lab_tls: Cluster, lab_sasl: Cluster) -> None:
    with pytest.raises((TlsFailed, Unreachable)):
        await open_to(lab_pair.source, security_of(lab_tls))
    with pytest.raises(Unreachable, match="does this port use PLAINTEXT"):
        await open_to(lab_sasl, Security())
    without_certificate = Security("SSL", ca=security_of(lab_tls).ca)
    with pytest.raises(TlsFailed, match="the broker wants a client certificate that it trusts"):
        await open_to(lab_tls, without_certificate)
    with pytest.raises(TlsFailed, match="its certificate is not accepted"):
        await open_to(lab_tls, security_of(lab_sasl))


async def test_a_limited_session_is_replaced_in_time(lab_sessions: Cluster) -> None:
    """KIP-368: the broker closes a connection that outlives its session; mirrord knows in advance when."""
    loop = asyncio.get_running_loop()
    connection = await open_to(lab_sessions)
    assert connection.replace_before is not None
    # Kafka subtracts up to 15 % from the lifetime that it reports.
    assert 1.0 < connection.replace_before - loop.time() <= 0.85 * 2
    await describe(connection)
    deadline = loop.time() + SECONDS
    lost: ConnectionLost | None = None
    while lost is None and loop.time() < deadline:
        try:
            await describe(connection)
        except ConnectionLost as error:
            lost = error
        await asyncio.sleep(0.1)
    assert lost is not None
    assert loop.time() > connection.replace_before
    connection.close()


async def test_a_broker_that_stands_still_is_given_up(lab_pair: LabPair) -> None:
    cluster = lab_pair.target
    connection = await open_to(cluster)
    connection.pipe._timeout_s = 1.0
    cluster.pause()
    try:
        with pytest.raises(ConnectionLost, match="no answer to Metadata within 1 s"):
            await describe(connection)
    finally:
        cluster.resume()
    async with linked(cluster) as again:
        assert (await describe(again)).brokers
