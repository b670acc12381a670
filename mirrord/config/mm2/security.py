"""Translates one cluster's client settings into the cluster's `bootstrap` and `security` keys.

In MirrorMaker 2, the consumer, the admin client and the producer of a cluster can have different settings. mirrord uses
one identity for each cluster. For a property of the cluster `eu`, the first of these keys that the file contains
applies: `eu.NAME`, `eu.consumer.NAME`, `eu.admin.NAME`, `eu.producer.NAME`, `NAME`.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from mirrord.config.jaas import JaasEntry, parse_jaas
from mirrord.config.java_properties import split_list
from mirrord.config.mm2.properties_file import PropertiesFile, PropertyValue
from mirrord.config.mm2.property_meanings import JavaClass
from mirrord.config.schema import ClusterConfig
from mirrord.config.security import Mechanism, Protocol, Secret, Security
from mirrord.config.value_parsers import HOST_RULE, host_port
from mirrord.model.names import Alias

CLIENTS = ("consumer", "admin", "producer")
_PROTOCOLS: Mapping[str, Protocol] = {
    "PLAINTEXT": "PLAINTEXT",
    "SSL": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
}
_MECHANISMS: Mapping[str, Mechanism] = {
    "PLAIN": "PLAIN",
    "SCRAM-SHA-256": "SCRAM-SHA-256",
    "SCRAM-SHA-512": "SCRAM-SHA-512",
    "OAUTHBEARER": "OAUTHBEARER",
}
_COMMON = "org.apache.kafka.common.security"
_BEARER_MODULE = f"{_COMMON}.oauthbearer.OAuthBearerLoginModule"
_MODULES: Mapping[Mechanism, str] = {
    "PLAIN": f"{_COMMON}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_COMMON}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_COMMON}.scram.ScramLoginModule",
    "OAUTHBEARER": _BEARER_MODULE,
}
_NO_LOGIN_CODE = 'security with mechanism "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512" or "OAUTHBEARER" (with token_url)'
_REFUSED = {
    "sasl.client.callback.handler.class": JavaClass((), _NO_LOGIN_CODE),
    "sasl.login.class": JavaClass((), _NO_LOGIN_CODE),
    "security.providers": JavaClass((), "Python's TLS, with PEM, PKCS12 or JKS stores"),
    "ssl.engine.factory.class": JavaClass(
        ("org.apache.kafka.common.security.ssl.DefaultSslEngineFactory",),
        "Python's TLS, with PEM, PKCS12 or JKS stores",
    ),
    "sasl.login.callback.handler.class": JavaClass(
        (
            f"{_COMMON}.oauthbearer.OAuthBearerLoginCallbackHandler",
            f"{_COMMON}.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
            f"{_COMMON}.oauthbearer.internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler",
        ),
        "security with token_url, username (the client's id), password (its secret) and scope",
    ),
    "sasl.oauthbearer.jwt.retriever.class": JavaClass(
        tuple(f"{_COMMON}.oauthbearer.{name}JwtRetriever" for name in ("Default", "ClientCredentials", "File")),
        "security with token_url, username (the client's id), password (its secret) and scope",
    ),
}
_STORES = {"JKS": True, "PKCS12": True, "PEM": False}
_FILE_URL = "file://"


class ClusterReader:
    """Reads the settings of one cluster from an mm2.properties file."""

    def __init__(self, source: PropertiesFile, alias: Alias) -> None:
        self._file = source
        self._alias = alias

    def read(self) -> ClusterConfig:
        """Return the configuration of the cluster. Every fault is recorded in the `PropertiesFile`."""
        return ClusterConfig(bootstrap=self._bootstrap(), security=self._security())

    def find(self, name: str) -> PropertyValue | None:
        """Return the value of a property for this cluster, or None if the file does not set it."""
        return self._file.find(*self._keys(name))

    def find_secret(self, name: str) -> PropertyValue | None:
        """Return the value of a property for this cluster, or None if the file does not set it. Expressions in the
        value are not replaced, because they may refer to secrets."""
        return self._file.find_secret(*self._keys(name))

    def _keys(self, name: str) -> list[str]:
        return [f"{self._alias}.{name}", *(f"{self._alias}.{client}.{name}" for client in CLIENTS), name]

    def _bootstrap(self) -> tuple[str, ...]:
        found = self.find("bootstrap.servers")
        if found is None:
            self._file.fault(f"{self._alias}.bootstrap.servers", f"missing; allowed: {HOST_RULE}, ...")
            return ()
        addresses: list[str] = []
        for item in split_list(found.text):
            try:
                addresses.append(str(host_port(item.rpartition("://")[2])))
            except ValueError:
                self._file.fault(found.key, f'found "{item}"; allowed: {HOST_RULE}')
        if not addresses:
            self._file.wrong(found, f"{HOST_RULE}, ...")
        return tuple(addresses)

    def _security(self) -> Security:
        for name, rule in _REFUSED.items():
            self._file.java_class(self.find(name), name, rule)
        named = self.find("security.protocol")
        upper = named and named._replace(text=named.text.upper())
        protocol: Protocol = self._file.choice(upper, _PROTOCOLS, "PLAINTEXT")
        security = Security(protocol=protocol)
        if protocol.startswith("SASL_"):
            security = replace(security, **self._sasl(protocol))
        if protocol.endswith("SSL"):
            algorithm = self.find("ssl.endpoint.identification.algorithm")
            check_hostname = algorithm is None or algorithm.text != ""
            security = replace(security, check_hostname=check_hostname, **self._trust(), **self._client_certificate())
        return security

    def _sasl(self, protocol: Protocol) -> Mapping[str, object]:
        named = self.find("sasl.mechanism")
        if named is None:
            rule = " or ".join(f'"{name}"' for name in _MECHANISMS)
            self._file.fault(
                f"{self._alias}.sasl.mechanism", f"missing with {protocol} (Kafka then uses GSSAPI); allowed: {rule}"
            )
            return {}
        known: Mapping[str, Mechanism | None] = _MECHANISMS
        mechanism: Mechanism | None = self._file.choice(named, known, None)
        if mechanism is None:
            return {}
        jaas = self.find_secret("sasl.jaas.config")
        if jaas is None and mechanism == "OAUTHBEARER" and self.find("sasl.oauthbearer.token.endpoint.url"):
            return {"mechanism": mechanism, **self._bearer(None, JaasEntry(_BEARER_MODULE, {}))}
        entry = self._jaas(jaas, mechanism)
        if jaas is None or entry is None:
            return {}
        if mechanism == "OAUTHBEARER":
            return {"mechanism": mechanism, **self._bearer(jaas, entry)}
        for option in ("username", "password"):
            if not entry.options.get(option):
                self._file.fault(jaas.key, f"{option} is missing from it")
        return {
            "mechanism": mechanism,
            "username": self._plain(jaas, entry, "username"),
            "password": self._option(jaas, entry, "password"),
        }

    def _jaas(self, jaas: PropertyValue | None, mechanism: Mechanism) -> JaasEntry | None:
        module = _MODULES[mechanism]
        if jaas is None:
            self._file.fault(
                f"{self._alias}.sasl.jaas.config", f'missing with {mechanism}; allowed: {module} required NAME="VALUE";'
            )
            return None
        try:
            entry = parse_jaas(jaas.raw)
        except ValueError:
            expanded = self._file.expand(jaas.key, jaas.raw)
            try:
                entry = parse_jaas(expanded or "")
            except ValueError as rule:
                if expanded is not None:
                    self._file.wrong(jaas, f"{rule}")
                return None
        if entry.module != module:
            self._file.fault(
                jaas.key,
                f'found the login module "{entry.module}"; with {mechanism} allowed: {module}. {_NO_LOGIN_CODE}',
            )
            return None
        return entry

    def _bearer(self, jaas: PropertyValue | None, entry: JaasEntry) -> Mapping[str, object]:
        url = self.find("sasl.oauthbearer.token.endpoint.url")
        subject = self._plain(jaas, entry, "unsecuredLoginStringClaim_sub")
        if url is None and subject:
            return {"username": subject, "unsigned": True}
        if url is None:
            key = jaas.key if jaas else f"{self._alias}.sasl.jaas.config"
            self._file.fault(key, "OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url (https://... or file:///...)")
            return {}
        if url.text.startswith(_FILE_URL):
            return {"password": Secret.parse(f"file:{url.text.removeprefix(_FILE_URL)}")}
        if not url.text.startswith(("https://", "http://")):
            self._file.wrong(url, 'an address that begins with "https://", "http://" or "file:///"')
        client = self.find("sasl.oauthbearer.client.credentials.client.id")
        secret = self.find_secret("sasl.oauthbearer.client.credentials.client.secret")
        scope = self.find("sasl.oauthbearer.scope")
        username = client.text if client else self._plain(jaas, entry, "clientId")
        password = self._file.secret(secret) if secret else jaas and self._option(jaas, entry, "clientSecret")
        if not username or password is None:
            self._file.fault(url.key, "a token needs clientId and clientSecret in sasl.jaas.config")
        return {
            "token_url": url.text,
            "username": username,
            "password": password,
            "scope": scope.text if scope else self._plain(jaas, entry, "scope"),
        }

    def _plain(self, jaas: PropertyValue | None, entry: JaasEntry, option: str) -> str | None:
        """Return the value of one option of a JAAS entry. Used only for options that are not secrets, such as the user
        name."""
        if jaas is None or option not in entry.options:
            return None
        return self._file.expand(jaas.key, entry.options[option])

    def _option(self, jaas: PropertyValue, entry: JaasEntry, option: str) -> Secret | None:
        """Return a reference to one option of a JAAS entry. The option is a secret, so the result does not contain its
        value."""
        if option not in entry.options:
            return None
        whole = self._file.providers.whole(jaas.raw) is not None
        return self._file.secret(jaas, option, None if whole else entry.options[option])

    def _trust(self) -> Mapping[str, object]:
        pem = self.find_secret("ssl.truststore.certificates")
        location = self.find("ssl.truststore.location")
        is_store = self._is_store("ssl.truststore.type")
        password = self.find_secret("ssl.truststore.password")
        if pem is not None:
            return {"ca": self._file.secret(pem)}
        if location is None:
            return {}
        if not is_store:
            return {"ca": Secret.parse(f"file:{location.text}")}
        return {"truststore": location.text, "truststore_password": password and self._file.secret(password)}

    def _client_certificate(self) -> Mapping[str, object]:
        key, chain = self.find_secret("ssl.keystore.key"), self.find_secret("ssl.keystore.certificate.chain")
        location = self.find("ssl.keystore.location")
        is_store = self._is_store("ssl.keystore.type")
        password, key_password = self.find_secret("ssl.keystore.password"), self.find_secret("ssl.key.password")
        locked = {"key_password": key_password and self._file.secret(key_password)}
        if key is not None and chain is not None:
            return {"certificate": self._file.secret(chain), "key": self._file.secret(key), **locked}
        if key is not None or chain is not None:
            one, other = ("key", "certificate.chain") if key else ("certificate.chain", "key")
            self._file.fault(f"{self._alias}.ssl.keystore.{other}", f"missing; ssl.keystore.{one} needs it")
        if location is None:
            return {}
        if not is_store:
            both = Secret.parse(f"file:{location.text}")
            return {"certificate": both, "key": both, **locked}
        if password is None:
            self._file.fault(f"{self._alias}.ssl.keystore.password", "missing; the key store needs it")
        return {
            "keystore": location.text,
            "keystore_password": password and self._file.secret(password),
            **locked,
        }

    def _is_store(self, name: str) -> bool:
        found = self.find(name)
        return self._file.choice(found and found._replace(text=found.text.upper()), _STORES, True)
