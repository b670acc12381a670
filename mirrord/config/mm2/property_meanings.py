"""Maps each property of MirrorMaker 2's dedicated mode to its translation, or to the reason why it has no meaning in
mirrord.

The property names are those of Kafka 4.3: the properties of MirrorMaker 2's connectors, of Connect's workers and REST
interface, and of the consumer, the producer and the admin client.
"""

import msgspec

BECOMES: dict[str, str] = {
    "clusters": "[clusters.ALIAS]",
    "enabled": "[[flows]]",
    "topics": "topics",
    "topics.exclude": "exclude",
    "refresh.topics.enabled": "refresh",
    "refresh.topics.interval.seconds": "refresh",
    "heartbeats.replication.enabled": "heartbeats.replicate",
    "replication.factor": "replication_factor",
    "sync.topic.configs.enabled": "sync.configs",
    "sync.topic.configs.interval.seconds": "sync.every",
    "config.properties.exclude": "sync.exclude_configs",
    "use.defaults.from": "sync.use_defaults_from",
    "sync.topic.acls.enabled": "sync.acls",
    "sync.topic.acls.interval.seconds": "sync.every",
    "replication.policy.class": "naming",
    "replication.policy.separator": "separator",
    "replication.policy.internal.topic.separator.enabled": "mm2_records.separator",
    "offset.lag.max": "mm2_records.offset_lag_max",
    "offset-syncs.topic.location": "mm2_records.offset_syncs",
    "offset-syncs.topic.replication.factor": "mm2_records.offset_syncs_replication_factor",
    "emit.offset-syncs.enabled": "mm2_records.offset_syncs",
    "groups": "groups.match",
    "groups.exclude": "groups.exclude",
    "refresh.groups.enabled": "groups.refresh",
    "refresh.groups.interval.seconds": "groups.refresh",
    "emit.checkpoints.enabled": "mm2_records.checkpoints",
    "emit.checkpoints.interval.seconds": "mm2_records.checkpoints_every",
    "sync.group.offsets.enabled": "groups.mode",
    "sync.group.offsets.interval.seconds": "groups.every",
    "checkpoints.topic.replication.factor": "mm2_records.checkpoints_replication_factor",
    "emit.heartbeats.enabled": "heartbeats.emit",
    "emit.heartbeats.interval.seconds": "heartbeats.every",
    "heartbeats.topic.replication.factor": "heartbeats.replication_factor",
    "topic.filter.class": "topics, exclude",
    "group.filter.class": "groups.match, groups.exclude",
    "config.property.filter.class": "sync.exclude_configs",
    "forwarding.admin.class": "(built in)",
    "transforms": "(refused)",
    "predicates": "(refused)",
    "key.converter": "(built in)",
    "value.converter": "(built in)",
    "header.converter": "(built in)",
    "config.providers": "references to secrets",
}
"""The properties of a flow, each with the conf.toml key that replaces it. If one of these properties is set without a
prefix such as `eu->us.`, it applies to all flows."""

OLD: dict[str, tuple[str, ...]] = {
    "topics.exclude": ("topics.blacklist",),
    "groups.exclude": ("groups.blacklist",),
    "config.properties.exclude": ("config.properties.blacklist", "sync.topic.configs.exclude"),
}
"""Other names under which a property may be set: former names, and a name that is often used by mistake."""

SECURITY: dict[str, str] = {
    "bootstrap.servers": "bootstrap",
    "security.protocol": "security.protocol",
    "sasl.mechanism": "security.mechanism",
    "sasl.jaas.config": "security.username, security.password",
    "sasl.login.callback.handler.class": "security.token_url, security.unsigned",
    "sasl.oauthbearer.jwt.retriever.class": "security.token_url",
    "sasl.oauthbearer.token.endpoint.url": "security.token_url",
    "sasl.oauthbearer.client.credentials.client.id": "security.username",
    "sasl.oauthbearer.client.credentials.client.secret": "security.password",
    "sasl.oauthbearer.scope": "security.scope",
    "sasl.client.callback.handler.class": "(refused)",
    "sasl.login.class": "(refused)",
    "security.providers": "(refused)",
    "ssl.engine.factory.class": "(refused)",
    "ssl.endpoint.identification.algorithm": "security.check_hostname",
    "ssl.truststore.type": "security.truststore or security.ca",
    "ssl.truststore.location": "security.truststore or security.ca",
    "ssl.truststore.password": "security.truststore_password",
    "ssl.truststore.certificates": "security.ca",
    "ssl.keystore.type": "security.keystore or security.certificate",
    "ssl.keystore.location": "security.keystore or security.certificate",
    "ssl.keystore.password": "security.keystore_password",
    "ssl.keystore.key": "security.key",
    "ssl.keystore.certificate.chain": "security.certificate",
    "ssl.key.password": "security.key_password",
}
"""The properties of a cluster, each with the conf.toml key that replaces it. If one of these properties is set without
a prefix such as `eu.`, it applies to all clusters."""

SOURCE_CONSUMER = {"isolation.level": "isolation", "auto.offset.reset": "start"}
"""The properties of the consumer that reads the source, each with the conf.toml key that replaces it. Other properties
of this consumer have no meaning in mirrord."""


class JavaClass(msgspec.Struct, frozen=True):
    """A property whose value is the name of a Java class.

    mirrord has a built-in equivalent for each class in `known`. `instead` describes the replacement for any other
    class.
    """

    known: tuple[str, ...]
    instead: str


_MIRROR = "org.apache.kafka.connect.mirror"
IDENTITY_POLICIES = (
    f"{_MIRROR}.IdentityReplicationPolicy",
    "io.strimzi.kafka.connect.mirror.IdentityReplicationPolicy",
)
_BYTES = JavaClass(
    ("org.apache.kafka.connect.converters.ByteArrayConverter",), "records are copied as bytes, unchanged"
)
_NO_CODE = "mirrord copies records unaltered and has no policy that alters them; remove the property"
_OWN = '; or a Python class of your own, in a conf.toml: {} = "module:Class"'
CLASSES: dict[str, JavaClass] = {
    "replication.policy.class": JavaClass(
        (f"{_MIRROR}.DefaultReplicationPolicy", *IDENTITY_POLICIES),
        'the policy naming: "prefix", "identity", or a template such as naming = "dr-{topic}"' + _OWN.format("naming"),
    ),
    "topic.filter.class": JavaClass(
        (f"{_MIRROR}.DefaultTopicFilter",), "the lists topics and exclude" + _OWN.format("select")
    ),
    "group.filter.class": JavaClass((f"{_MIRROR}.DefaultGroupFilter",), "the lists groups.match and groups.exclude"),
    "config.property.filter.class": JavaClass(
        (f"{_MIRROR}.DefaultConfigPropertyFilter",),
        "the list sync.exclude_configs and sync.use_defaults_from" + _OWN.format("sync.filter_configs"),
    ),
    "forwarding.admin.class": JavaClass(
        ("org.apache.kafka.clients.admin.ForwardingAdmin",),
        "topics that are created in advance: mirrord uses those that it finds on the target",
    ),
    "transforms": JavaClass((), _NO_CODE),
    "predicates": JavaClass((), _NO_CODE),
    "key.converter": _BYTES,
    "value.converter": _BYTES,
    "header.converter": _BYTES,
}

_CONNECT = "there are no Connect workers; replicators are placed by [replicators] and [runtime]"
_LANES = "each partition is copied independently; there are no tasks"
_STATE = "there are no Connect topics; the state is in the ledger on the target"
_REST = "daemons find each other through the ledger; the only address is [http] listen"
_METRICS = "metrics are in Prometheus's format, at /metrics on [http] listen"
_ONCE = "records always arrive exactly once, without transactions"
_TUNING = "mirrord tunes its connections itself; [flows.limits] in_flight_bytes limits its memory"
_CODEC = "records keep the codec in which the source stored them"
_BYTE_COPY = "records are copied as bytes and keep their partition"
_OWN_GROUP = "mirrord reads the source by position, without a consumer group"
_TLS = "TLS is Python's: the best that both sides support; security.tls_min and security.ciphers can limit it"
_KERBEROS = "Kerberos is not supported"
_LOGIN = "a token is fetched when a connection needs one"
_BEARER = "only brokers verify tokens, and tokens by assertion are not supported"

REASONS: dict[str, str] = {
    **dict.fromkeys(("tasks.max", "tasks.max.enforce", "task.index", "name", "connector.class"), _LANES),
    **dict.fromkeys(("source.cluster.alias", "target.cluster.alias"), "a flow is named after its clusters"),
    **dict.fromkeys(("admin.timeout.ms", "consumer.poll.timeout.ms"), _TUNING),
    "use.incremental.alter.configs": "configs are always altered one by one",
    "dedicated.mode.enable.internal.rest": _REST,
    **dict.fromkeys(
        (
            "listeners",
            "admin.listeners",
            "rest.advertised.host.name",
            "rest.advertised.port",
            "rest.advertised.listener",
            "rest.extension.classes",
            "response.http.headers.config",
            "access.control.allow.origin",
            "access.control.allow.methods",
            "ssl.client.auth",
        ),
        _REST,
    ),
    **dict.fromkeys(("metric.names.formats", "add.source.alias.to.metrics", "enable.metrics.push"), _METRICS),
    **dict.fromkeys(("metric.reporters", "auto.include.jmx.reporter"), _METRICS),
    **dict.fromkeys(("exactly.once.source.support", "exactly.once.support"), _ONCE),
    **dict.fromkeys(("transaction.boundary", "transaction.boundary.interval.ms"), _ONCE),
    **dict.fromkeys(("offset.flush.interval.ms", "offset.flush.timeout.ms"), "the target log itself is the position"),
    "offsets.storage.topic": _STATE,
    **dict.fromkeys(
        (
            "rebalance.timeout.ms",
            "scheduled.rebalance.max.delay.ms",
            "connect.protocol",
            "plugin.path",
            "plugin.discovery",
            "connector.client.config.override.policy",
            "config.action.reload",
        ),
        _CONNECT,
    ),
    # Kafka clients.
    **dict.fromkeys(("acks", "enable.idempotence", "retries", "transactional.id", "transaction.timeout.ms"), _ONCE),
    **dict.fromkeys(("max.in.flight.requests.per.connection", "transaction.two.phase.commit.enable"), _ONCE),
    **dict.fromkeys(("delivery.timeout.ms", "max.block.ms"), _ONCE),
    "compression.type": _CODEC,
    **dict.fromkeys(("compression.gzip.level", "compression.lz4.level", "compression.zstd.level"), _CODEC),
    **dict.fromkeys(
        (
            "key.serializer",
            "value.serializer",
            "key.deserializer",
            "value.deserializer",
            "partitioner.class",
            "partitioner.ignore.keys",
            "partitioner.adaptive.partitioning.enable",
            "partitioner.availability.timeout.ms",
        ),
        _BYTE_COPY,
    ),
    "interceptor.classes": "no Java code sees the records",
    "allow.auto.create.topics": "mirrord never creates topics on the source",
    **dict.fromkeys(
        (
            "group.id",
            "group.instance.id",
            "group.protocol",
            "group.remote.assignor",
            "enable.auto.commit",
            "auto.commit.interval.ms",
            "session.timeout.ms",
            "heartbeat.interval.ms",
            "max.poll.interval.ms",
            "partition.assignment.strategy",
            "exclude.internal.topics",
            "internal.throw.on.fetch.stable.offset.unsupported",
            "share.acknowledgement.mode",
            "share.acquire.mode",
        ),
        _OWN_GROUP,
    ),
    **dict.fromkeys(
        (
            "batch.size",
            "bootstrap.controllers",
            "buffer.memory",
            "check.crcs",
            "client.dns.lookup",
            "client.id",
            "client.rack",
            "connections.max.idle.ms",
            "default.api.timeout.ms",
            "fetch.max.bytes",
            "fetch.max.wait.ms",
            "fetch.min.bytes",
            "linger.ms",
            "max.partition.fetch.bytes",
            "max.poll.records",
            "max.request.size",
            "metadata.max.age.ms",
            "metadata.max.idle.ms",
            "metadata.recovery.rebootstrap.trigger.ms",
            "metadata.recovery.strategy",
            "receive.buffer.bytes",
            "reconnect.backoff.max.ms",
            "reconnect.backoff.ms",
            "request.timeout.ms",
            "retry.backoff.max.ms",
            "retry.backoff.ms",
            "send.buffer.bytes",
            "socket.connection.setup.timeout.max.ms",
            "socket.connection.setup.timeout.ms",
        ),
        _TUNING,
    ),
    **dict.fromkeys(
        (
            "ssl.cipher.suites",
            "ssl.enabled.protocols",
            "ssl.keymanager.algorithm",
            "ssl.protocol",
            "ssl.provider",
            "ssl.secure.random.implementation",
            "ssl.trustmanager.algorithm",
        ),
        _TLS,
    ),
    **dict.fromkeys(
        (
            "sasl.kerberos.kinit.cmd",
            "sasl.kerberos.min.time.before.relogin",
            "sasl.kerberos.service.name",
            "sasl.kerberos.ticket.renew.jitter",
            "sasl.kerberos.ticket.renew.window.factor",
        ),
        _KERBEROS,
    ),
    **dict.fromkeys(
        (
            "sasl.login.connect.timeout.ms",
            "sasl.login.read.timeout.ms",
            "sasl.login.refresh.buffer.seconds",
            "sasl.login.refresh.min.period.seconds",
            "sasl.login.refresh.window.factor",
            "sasl.login.refresh.window.jitter",
            "sasl.login.retry.backoff.max.ms",
            "sasl.login.retry.backoff.ms",
            "sasl.oauthbearer.header.urlencode",
        ),
        _LOGIN,
    ),
    **dict.fromkeys(
        (
            "sasl.oauthbearer.clock.skew.seconds",
            "sasl.oauthbearer.expected.audience",
            "sasl.oauthbearer.expected.issuer",
            "sasl.oauthbearer.jwks.endpoint.refresh.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
            "sasl.oauthbearer.jwks.endpoint.url",
            "sasl.oauthbearer.jwt.validator.class",
            "sasl.oauthbearer.scope.claim.name",
            "sasl.oauthbearer.sub.claim.name",
        ),
        _BEARER,
    ),
}
"""Properties that have no meaning in mirrord, each with the reason."""

REASON_PREFIXES: dict[str, str] = {
    "offset.storage.": _STATE,
    "config.storage.": _STATE,
    "status.storage.": _STATE,
    "key.converter.": _BYTE_COPY,
    "value.converter.": _BYTE_COPY,
    "header.converter.": _BYTE_COPY,
    "transforms.": "no Java code sees the records",
    "predicates.": "no Java code sees the records",
    "errors.": "a record that the target refuses halts only its own partition and is reported",
    "task.": _LANES,
    "worker.": _CONNECT,
    "inter.worker.": _REST,
    "topic.tracking.": _CONNECT,
    "topic.creation.": "topics are created as replication_factor and sync specify",
    "metrics.": _METRICS,
    "listeners.https.": _REST,
    "admin.listeners.": _REST,
    "sasl.oauthbearer.assertion.": _BEARER,
    "config.providers.": "a declared provider may read everything that the file names",
}
"""Prefixes of additional properties that have no meaning in mirrord, each with the reason."""


def reason(name: str) -> str | None:
    """Return why the property has no meaning in mirrord. Return None if it has a meaning or is unknown."""
    if name in REASONS:
        return REASONS[name]
    return next((why for prefix, why in REASON_PREFIXES.items() if name.startswith(prefix)), None)
