"""Client quotas as Kafka stores them (KIP-546)."""

import msgspec


class ClientQuota(msgspec.Struct, frozen=True, array_like=True):
    """One limit of a client quota.

    This struct is stored in the state topic, so new fields may only be added at the end.
    """

    entity: tuple[tuple[str, str | None], ...]
    """The clients to which the limit applies: pairs of an entity type (user, client-id, ip) and a name, sorted by type.
    The name is None for the default of the entity type."""
    name: str
    """Kafka's name for the limit, such as `producer_byte_rate`."""
    value: float

    @property
    def clients(self) -> str:
        """The clients to which the limit applies, such as `user ada, client-id <default>`."""
        # Like Kafka's tools, this names the user before the client id.
        return ", ".join(f"{kind} {'<default>' if name is None else name}" for kind, name in reversed(self.entity))

    @property
    def shown_value(self) -> str:
        """The value, without a decimal point if it is a whole number."""
        return f"{self.value:.0f}" if self.value % 1 == 0 else f"{self.value}"

    def __str__(self) -> str:
        return f"{self.name}={self.shown_value} for {self.clients}"
