"""Notices about properties in an mm2.properties file that are not translated. Such a property has no meaning in
mirrord, is ignored by MirrorMaker 2 as well, or is unknown."""

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from mirrord.config.fault_text import closest_name
from mirrord.config.mm2.properties_file import PropertiesFile
from mirrord.config.mm2.property_keys import PropertyLocation, locate
from mirrord.config.mm2.property_meanings import BECOMES, OLD, REASONS, SECURITY, SOURCE_CONSUMER, reason
from mirrord.model.names import Alias

NoticeKind = Literal["without-meaning", "unknown", "remark"]
_GROUPS = "sync.group.offsets.enabled"
_OLD = tuple(old for names in OLD.values() for old in names)
_FLOW = (*BECOMES, *_OLD)


class Notice(msgspec.Struct, frozen=True):
    """A one-line notice for operators. It concerns either one property, which may occur several times in the file, or
    the whole file."""

    kind: NoticeKind
    key: str
    lines: tuple[int, ...]
    text: str

    def of(self, file_name: str) -> str:
        """Return the notice as one line of text, with the file name and the line numbers of the property."""
        if not self.lines:
            return f"{file_name}: {self.text}"
        others = f" (also in line {', '.join(map(str, self.lines[1:]))})" if self.lines[1:] else ""
        return f"{file_name}:{self.lines[0]}: {self.key}: {self.text}{others}"


def notices(
    source: PropertiesFile, aliases: Sequence[Alias], flows: Sequence[tuple[Alias, Alias]]
) -> tuple[Notice, ...]:
    """Return all notices, sorted by line number. `flows` contains the enabled flows, as pairs of source and target."""
    found: dict[tuple[str, str], Notice] = {}
    for entry in source.entries.values():
        parts = locate(entry.key, aliases)
        verdict = _verdict(parts, source, flows)
        if verdict is None:
            continue
        kind, text = verdict
        if kind == "unknown":
            like = _nearest(entry.key, parts, aliases)
            text = f"unknown{f'; did you mean {chr(34)}{like}{chr(34)}?' if like else ''}"
        former = found.get((parts.name, text))
        if former is not None and kind == "without-meaning":
            found[parts.name, text] = msgspec.structs.replace(former, lines=(*former.lines, entry.line))
        else:
            found[parts.name if kind == "without-meaning" else entry.key, text] = Notice(
                kind, entry.key, (entry.line,), text
            )
    repeated = [
        Notice(
            "remark", entry.key, (entry.line,), f"is repeated in line {source.entries[entry.key].line}, which applies"
        )
        for entry in source.repeated
    ]
    return tuple(sorted([*found.values(), *repeated, *_stronger(source)], key=lambda notice: notice.lines))


def _stronger(source: PropertiesFile) -> Iterator[Notice]:
    """Yield a notice about the properties whose defaults give a stronger guarantee in mirrord than in MirrorMaker 2.
    Only properties that the file does not set are included."""
    held = [
        setting
        for name, setting in (("isolation.level", 'isolation = "read_committed"'), (_GROUPS, 'groups.mode = "follow"'))
        if not any(key.endswith(name) for key in source.taken)
    ]
    if held:
        text = "not set, so mirrord's default applies, which is stronger than MirrorMaker 2's: "
        yield Notice("remark", "", (), text + ", ".join(held))


def _verdict(
    parts: PropertyLocation, source: PropertiesFile, flows: Sequence[tuple[Alias, Alias]]
) -> tuple[NoticeKind, str] | None:
    """Return the kind and the text of the notice about a property, or None if no notice is needed, for example because
    the property is used."""
    if len(parts.clusters) == 2 and parts.clusters not in flows:
        return None if _is_known(parts) else ("unknown", "")
    if len(parts.clusters) == 1 and not any(parts.clusters[0] in flow for flow in flows):
        return None if _is_known(parts) else ("unknown", "")
    if parts.name in SECURITY:
        return _of_security(parts, source)
    if parts.client:
        return _of_client(parts, source)
    if parts.name in _FLOW and len(parts.clusters) == 1:
        return "remark", "ignored, also by MirrorMaker 2: it belongs to a flow or to the top of the file"
    if parts.name in _FLOW or _is_provider(parts):
        return None
    why = reason(parts.name)
    return ("unknown", "") if why is None else ("without-meaning", f"has no effect in mirrord: {why}")


def _of_security(parts: PropertyLocation, source: PropertiesFile) -> tuple[NoticeKind, str] | None:
    key = f"{parts.prefix}{parts.client}{parts.name}"
    if key in source.taken:
        return None
    if len(parts.clusters) == 2:
        wanted = f"{parts.clusters[0]}.{parts.name}"
        return "remark", f"not used: in mirrord, a cluster has one identity; write it as {wanted}"
    mine = [f"{parts.prefix}{client}{parts.name}" for client in ("", "consumer.", "admin.", "producer.")]
    used = next((each for each in mine if each in source.taken), None)
    if used is not None and parts.clusters:
        if source.entries[used].value == source.entries[key].value:
            return None
        return "remark", f"not used: in mirrord, a cluster has one identity, that of {used}"
    return "remark", "not used: no cluster's security.protocol and sasl.mechanism require it, or each has its own"


def _of_client(parts: PropertyLocation, source: PropertiesFile) -> tuple[NoticeKind, str] | None:
    if parts.name in SOURCE_CONSUMER and parts.client.endswith("consumer."):
        if f"{parts.prefix}{parts.client}{parts.name}" in source.taken:
            return None
        if parts.clusters:
            return "without-meaning", "has no effect in mirrord: no flow uses it to read the records that it copies"
    if not _is_known(parts):
        return "unknown", ""
    if not parts.clusters:
        return "remark", f"ignored, also by MirrorMaker 2: for a cluster, it would be ALIAS.{parts.client}{parts.name}"
    return "without-meaning", f"has no effect in mirrord: {reason(parts.name)}"


def _is_known(parts: PropertyLocation) -> bool:
    if parts.client:
        return parts.name in SOURCE_CONSUMER or parts.name in SECURITY or reason(parts.name) is not None
    return parts.name in _FLOW or parts.name in SECURITY or _is_provider(parts) or reason(parts.name) is not None


def _is_provider(parts: PropertyLocation) -> bool:
    return parts.name.startswith("config.providers.") and parts.name.endswith(".class")


def _nearest(key: str, parts: PropertyLocation, aliases: Sequence[Alias]) -> str | None:
    if parts.clusters:
        here = (
            (*SOURCE_CONSUMER, *REASONS)
            if parts.client
            else _FLOW
            if len(parts.clusters) == 2
            else (*SECURITY, *REASONS)
        )
        like = closest_name(parts.name, here)
        return like and f"{parts.prefix}{parts.client}{like}"
    return closest_name(key, _everything(aliases))


def _everything(aliases: Sequence[Alias]) -> Iterator[str]:
    yield from (*_FLOW, *SECURITY, *REASONS)
    for alias in aliases:
        yield from (f"{alias}.{name}" for name in SECURITY)
        yield from (f"{alias}.consumer.{name}" for name in SOURCE_CONSUMER)
        yield from (f"{alias}->{other}.{name}" for other in aliases if other != alias for name in _FLOW)
