"""Defines the options of a lab cluster and turns them into the server.properties of its nodes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mirrord.config.security import Mechanism, Protocol
from mirrord.lab.jars import KAFKA_VERSION
from mirrord.lab.ports import LOOPBACK

CONTROLLER_ID = 100
ADMIN = "admin"
DEFAULT_USERS = {ADMIN: "admin-secret", "mirrord": "mirrord-secret", "stranger": "stranger-secret"}
_MECHANISMS: tuple[Mechanism, ...] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_LOGIN = "org.apache.kafka.common.security"


@dataclass(frozen=True, kw_only=True)
class LabOptions:
    """The options of one cluster: its size, its version, and how clients authenticate."""

    version: str = KAFKA_VERSION
    brokers: int = 1
    """Number of brokers. A single broker is also the controller. With several brokers, the controller is a separate
    process, so that each broker can be killed."""
    protocol: Protocol = "PLAINTEXT"
    """Protocol of the listener for clients. If it is a SASL protocol, every mechanism in `Mechanism` is enabled."""
    users: Mapping[str, str] = field(default_factory=lambda: DEFAULT_USERS)
    """Passwords by user name. The user `admin` has all permissions."""
    authorizer: bool = False
    """Whether all users except `admin` need ACLs. This is useful only with SASL or `client_certificates`."""
    client_certificates: bool = False
    """Whether clients must present a certificate of the cluster's CA. This is useful only with TLS."""
    relayed: tuple[int, int] | None = None
    """The port of an additional plaintext listener, and the port that this listener advertises. The advertised port
    belongs to a relay between clients and the broker. A relay is possible only in a cluster with one broker."""
    aside: bool = False
    """Whether each broker has a second plaintext listener for clients, at the address in `Cluster.aside`. A test can
    then cut off only the clients of the first listener."""
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    """Properties that replace or extend those in the nodes' server.properties."""
    heap_mb: int = 384
    quick_start: bool = True
    """Whether the JVM uses only its fast compiler (C1) and the serial garbage collector, and the broker has few threads
    and few periodic tasks. It then starts quickly and takes little CPU time, which is useful in tests. Otherwise, the
    JVM runs with the options of Kafka's start script, as benchmarks require."""
    java_options: tuple[str, ...] = ()
    """Additional JVM options. They apply only to the nodes, not to Kafka's tools."""
    environments: Mapping[int, Mapping[str, str]] = field(default_factory=dict[int, Mapping[str, str]])
    """Additional environment variables of single nodes, by node id."""

    @property
    def tls(self) -> bool:
        return self.protocol in {"SSL", "SASL_SSL"}

    @property
    def sasl(self) -> bool:
        return self.protocol.startswith("SASL_")

    @property
    def broker_ids(self) -> tuple[int, ...]:
        return tuple(range(1, self.brokers + 1))

    @property
    def node_ids(self) -> tuple[int, ...]:
        """Return the node ids of all processes of the cluster. The controller's id comes first."""
        return self.broker_ids if self.brokers == 1 else (CONTROLLER_ID, *self.broker_ids)


@dataclass(frozen=True)
class Ports:
    """The ports that one node listens on. A node that is only a controller uses only the port `controller`."""

    client: int
    internal: int
    controller: int
    aside: int = 0


def node_properties(options: LabOptions, node_id: int, ports: Mapping[int, Ports], folder: Path) -> dict[str, str]:
    """Return the server.properties of one node. `folder` is the cluster's folder. With TLS, it contains `store.pem` and
    `ca.pem`."""
    controller_id = options.node_ids[0]
    roles = [
        role for role, has in (("broker", node_id != CONTROLLER_ID), ("controller", node_id == controller_id)) if has
    ]
    mine = ports[node_id]
    listeners: dict[str, int] = {}
    if "broker" in roles:
        listeners |= {"CLIENT": mine.client, "INTERNAL": mine.internal}
        if options.relayed:
            listeners["RELAYED"] = options.relayed[0]
        if options.aside:
            listeners["ASIDE"] = mine.aside
    if "controller" in roles:
        listeners["CONTROLLER"] = mine.controller
    return {
        "process.roles": ",".join(roles),
        "node.id": str(node_id),
        "controller.quorum.voters": f"{controller_id}@{LOOPBACK}:{ports[controller_id].controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": ",".join(f"{name}://{LOOPBACK}:{port}" for name, port in listeners.items()),
        "listener.security.protocol.map": f"CLIENT:{options.protocol},INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
        + (",RELAYED:PLAINTEXT" if options.relayed else "")
        + (",ASIDE:PLAINTEXT" if options.aside else ""),
        "inter.broker.listener.name": "INTERNAL",
        "log.dirs": str(folder / f"node-{node_id}" / "data"),
        **_common(options),
        **(_relayed(listeners, options.relayed[1]) if options.relayed else {}),
        **(_tls(options, folder) if options.tls else {}),
        **(_sasl(options) if options.sasl else {}),
        **(_authorizer() if options.authorizer else {}),
        **options.properties,
    }


def render(properties: Mapping[str, str]) -> str:
    """Return the text of a Java properties file."""
    return "".join(f"{_escaped(name)}={_escaped(value)}\n" for name, value in properties.items())


def scram_credentials(options: LabOptions) -> list[str]:
    """Return values for the --add-scram option of Kafka's storage tool. With these values, every user can log in with
    either SCRAM mechanism."""
    if not options.sasl:
        return []
    return [
        f"{mechanism}=[name={name},password={password}]"
        for mechanism in _MECHANISMS
        if mechanism.startswith("SCRAM")
        for name, password in options.users.items()
    ]


_QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
_AS_KAFKA_STARTS = ("-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")
"""The performance options in Kafka's start script (KAFKA_JVM_PERFORMANCE_OPTS in kafka-run-class.sh)."""


def class_archive(java: str, jars: Path) -> Path:
    """Return the path of the class data sharing archive (an archive of loaded classes) for these jars and this JVM.
    `tests.fixtures.class_archive` creates the archive."""
    changed = Path(java).resolve().stat()
    return jars.parent / f"{jars.name}-classes-{changed.st_size:x}-{int(changed.st_mtime):x}.jsa"


def archive_options(java: str, jars: Path) -> list[str]:
    """Return the options that make Java use the class archive, or an empty list if the archive does not exist."""
    archive = class_archive(java, jars)
    return [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []


def jvm_options(options: LabOptions) -> list[str]:
    return [
        f"-Xmx{options.heap_mb}m",
        *(_QUICK if options.quick_start else _AS_KAFKA_STARTS),
        "-XX:+ExitOnOutOfMemoryError",
        "-Djava.awt.headless=true",
        "-Dorg.slf4j.simpleLogger.showDateTime=true",
        "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
        "-Dorg.slf4j.simpleLogger.log.state.change.logger=warn",
    ]


def _relayed(listeners: Mapping[str, int], relay: int) -> dict[str, str]:
    advertised = {name: port for name, port in listeners.items() if name != "CONTROLLER"} | {"RELAYED": relay}
    return {"advertised.listeners": ",".join(f"{name}://{LOOPBACK}:{port}" for name, port in advertised.items())}


def _common(options: LabOptions) -> dict[str, str]:
    replicas = str(min(options.brokers, 3))
    return {
        "num.partitions": "1",
        "auto.create.topics.enable": "false",
        "default.replication.factor": replicas,
        "offsets.topic.num.partitions": "4",
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.num.partitions": "4",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "log.cleaner.dedupe.buffer.size": "2097152",
        # A broker that was killed with `kill -9` can register again only after its old session has expired. The broker
        # retries after about 0.2, 0.6, 1.4 and 3 s (BrokerLifecycleManager).
        "broker.session.timeout.ms": "1300" if options.brokers == 1 else "3000",
        "broker.heartbeat.interval.ms": "200",
        **(_QUIET if options.quick_start else {}),
    }


_QUIET = {
    # The controller writes no record only to show that it is alive.
    "metadata.max.idle.interval.ms": "0",
    "broker.heartbeat.interval.ms": "400",
    "num.network.threads": "2",
    "num.io.threads": "3",
    "background.threads": "2",
}
"""Properties with which an idle broker takes half of the CPU time. Tests run several brokers on few cores."""


def _tls(options: LabOptions, folder: Path) -> dict[str, str]:
    return {
        "listener.name.client.ssl.keystore.type": "PEM",
        "listener.name.client.ssl.keystore.location": str(folder / "store.pem"),
        "listener.name.client.ssl.truststore.type": "PEM",
        "listener.name.client.ssl.truststore.location": str(folder / "ca.pem"),
        "listener.name.client.ssl.client.auth": "required" if options.client_certificates else "none",
    }


def _sasl(options: LabOptions) -> dict[str, str]:
    plain = " ".join(f"user_{name}={_quoted(password)}" for name, password in options.users.items())
    login = {
        "plain": f"{_LOGIN}.plain.PlainLoginModule required {plain};",
        "scram-sha-256": f"{_LOGIN}.scram.ScramLoginModule required;",
        "scram-sha-512": f"{_LOGIN}.scram.ScramLoginModule required;",
        # Without a configured validator, the broker accepts unsigned tokens. Such tokens are sufficient to test that a
        # client sends a token.
        "oauthbearer": f'{_LOGIN}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="{ADMIN}";',
    }
    return {
        "listener.name.client.sasl.enabled.mechanisms": ",".join(_MECHANISMS),
        **{f"listener.name.client.{mechanism}.sasl.jaas.config": value for mechanism, value in login.items()},
    }


def _authorizer() -> dict[str, str]:
    return {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # The nodes connect to each other without authentication.
        "super.users": f"User:{ADMIN};User:ANONYMOUS",
    }


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _escaped(text: str) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    # Java reads properties files as Latin-1.
    return "".join(letter if " " <= letter <= "~" else f"\\u{ord(letter):04x}" for letter in text)
