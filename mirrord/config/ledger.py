"""Declares the keys of `[ledger]`: the keys with which the entries of ledgers are signed."""

from pathlib import Path
from typing import Annotated, Any

import msgspec

from mirrord.config.key_declarations import Key
from mirrord.config.security import SECRET, Secret
from mirrord.config.toml_reader import Table
from mirrord.config.value_kinds import ListKind
from mirrord.config.value_parsers import text


class _SecretsKind(ListKind, frozen=True):
    def take(self, table: Table, name: str, default: Any) -> object:
        """Return the list, or `default` if the key is absent. Faults do not show the items."""
        return table.list_of(name, self.read, default=default, secret=True)


_SECRETS = _SecretsKind(SECRET.read, "a list of references like that of `key`", SECRET.write, secret=True)
_FLOWS = ListKind(text, "a list of names of flows")


class LedgerConfig(msgspec.Struct, frozen=True):
    """The keys with which all records of ledgers are signed and checked. All daemons that share a cluster need them,
    because flows read the ledgers of other flows. A secret of at least 32 random characters is a good key."""

    key: Annotated[
        Secret | None,
        Key(
            SECRET,
            "Key with which mirrord signs what it writes to ledgers. A ledger that exists without signatures has to be "
            "signed first: see `mirrord ledger sign`.",
            unset="ledgers are not signed",
        ),
    ] = None
    keys: Annotated[
        tuple[Secret, ...],
        Key(_SECRETS, "Further keys whose signatures are accepted: earlier keys, and keys of other daemons."),
    ] = ()
    unsigned: Annotated[
        tuple[str, ...],
        Key(_FLOWS, "Flows whose ledgers are not signed, for example because other daemons have no key yet."),
    ] = ()

    def below(self, folder: Path) -> "LedgerConfig":
        """Return the same settings, with relative paths resolved against this folder."""
        return LedgerConfig(
            self.key.below(folder) if self.key else None, tuple(key.below(folder) for key in self.keys), self.unsigned
        )
