"""Translates a MirrorMaker 2 flow into a mirrord flow.

If the file does not set a property, MirrorMaker 2's default applies, with two exceptions. By default, MirrorMaker 2
also copies the records of aborted transactions (`read_uncommitted`), and it does not sync consumer groups. In these two
cases, mirrord's own defaults apply: it uses `read_committed` and syncs groups.
"""

from typing import Literal

from mirrord.config.flow_features import (
    MONTH_MS,
    UNWANTED_CONFIGS,
    UNWANTED_GROUPS,
    EmitOn,
    FromMm2Config,
    GroupsConfig,
    HeartbeatsConfig,
    InternalFactor,
    Mm2RecordsConfig,
    OffsetSyncsOn,
    SyncConfig,
    separator,
    topic_name,
)
from mirrord.config.mm2.java_regex import python_regex
from mirrord.config.mm2.properties_file import PropertiesFile, PropertyValue
from mirrord.config.mm2.property_meanings import CLASSES, IDENTITY_POLICIES, OLD
from mirrord.config.schema import FlowConfig, ReplicationFactor
from mirrord.config.value_parsers import StartPoint
from mirrord.model.names import Alias

TOPICS_EXCLUDE = (r".*[\-\.]internal", r".*\.replica", "__.*")
"""MirrorMaker 2's default for `topics.exclude`."""
_SECONDS = 2**31 - 1
_ISOLATION: dict[str, Literal["read_committed", "read_uncommitted"]] = {
    "read_committed": "read_committed",
    "read_uncommitted": "read_uncommitted",
}
_START: dict[str, StartPoint] = {"earliest": "earliest", "latest": "latest", "none": "earliest"}
_LOCATION: dict[str, OffsetSyncsOn] = {"source": "source", "target": "target"}
_DEFAULTS_FROM: dict[str, Literal["source", "target"]] = {"source": "source", "target": "target"}


class FlowReader:
    """Reads the properties of the flow from one cluster to another. A key such as `eu->us.topics` applies to one flow.
    A key without a prefix, such as `topics`, applies to every flow for which the file has no key with that flow's
    prefix."""

    def __init__(self, source: PropertiesFile, start: Alias, end: Alias) -> None:
        self._file = source
        self._from = start
        self._to = end

    def find(self, name: str) -> PropertyValue | None:
        """Return the value of the property with this flow's prefix. If the file does not set it, return the value of
        the property without a prefix, which applies to all flows. If neither is set, return None.

        Former names of the property are accepted as well.
        """
        names = (name, *OLD.get(name, ()))
        return self._file.find(*(f"{self._from}->{self._to}.{each}" for each in names), *names)

    @property
    def enabled(self) -> bool:
        """Whether the file enables the flow. A flow that is not enabled copies nothing."""
        return self._file.boolean(self.find("enabled"), False)

    @property
    def emits_heartbeats(self) -> bool:
        """Whether heartbeats are written to the target. MirrorMaker 2 writes them even if the flow is not enabled."""
        return self._on("emit.heartbeats", True)

    def read(self, name: str, *, reverse: "FlowReader | None") -> FlowConfig:
        """Return the configuration of the flow.

        `reverse` is the reader of the flow in the opposite direction, if that flow is not enabled. MirrorMaker 2 would
        still write heartbeats for that flow, to the source of this flow. In mirrord, this flow therefore writes them.
        `reverse` is None if the opposite flow is enabled.
        """
        for known, rule in CLASSES.items():
            self._file.java_class(self.find(known), known, rule)
        policy = self.find("replication.policy.class")
        between = self._separator()
        return FlowConfig(
            name=name,
            source=self._from,
            target=self._to,
            topics=self._patterns("topics", (".*",)),
            exclude=self._patterns("topics.exclude", TOPICS_EXCLUDE),
            naming="identity" if policy is not None and policy.text in IDENTITY_POLICIES else "prefix",
            separator=between,
            start=self._file.choice(self._consumer("auto.offset.reset"), _START, "earliest"),
            isolation=self._file.choice(self._consumer("isolation.level"), _ISOLATION, "read_committed"),
            refresh_ms=self._refresh("refresh.topics"),
            replication_factor=self._factor("replication.factor", 2),
            groups=self._groups(),
            sync=self._sync(),
            heartbeats=self._heartbeats(reverse),
            mm2_records=self._records(between),
            from_mm2=self._legacy(),
        )

    def _legacy(self) -> FromMm2Config:
        """Return the topic in which MirrorMaker 2 stored its positions, and the group id of its workers. Both are on
        the target cluster, so the properties of that cluster apply."""
        topic = self._file.find("offset.storage.topic", f"{self._to}.offset.storage.topic")
        group = self._file.find(f"{self._to}.group.id")
        if topic is None:
            named = None
        else:
            try:
                named = topic_name(topic.text)
            except ValueError as rule:
                self._file.wrong(topic, f"{rule}")
                named = None
        return FromMm2Config(offsets_topic=named, workers_group=group.text if group is not None else None)

    def _groups(self) -> GroupsConfig:
        default = GroupsConfig()
        wanted = self.find("sync.group.offsets.enabled")
        named = self.find("sync.group.offsets.interval.seconds")
        every_ms = self._every_ms("sync.group.offsets.interval.seconds", 60) if named else default.every_ms
        carried = self._file.boolean(wanted, True) and every_ms is not None
        return GroupsConfig(
            match=self._patterns("groups", (".*",)),
            exclude=self._patterns("groups.exclude", UNWANTED_GROUPS),
            mode="follow" if carried else "off",
            every_ms=default.every_ms if every_ms is None else every_ms,
            refresh_ms=self._refresh("refresh.groups"),
        )

    def _sync(self) -> SyncConfig:
        configs, acls = self._on("sync.topic.configs", True), self._on("sync.topic.acls", True)
        both = [
            self._every_ms(f"{name}.interval.seconds", 600)
            for name, on in (("sync.topic.configs", configs), ("sync.topic.acls", acls))
            if on
        ]
        return SyncConfig(
            configs=configs,
            exclude_configs=self._patterns("config.properties.exclude", UNWANTED_CONFIGS),
            use_defaults_from=self._file.choice(self.find("use.defaults.from"), _DEFAULTS_FROM, "target"),
            acls="read-only" if acls else "off",
            every_ms=min((each for each in both if each is not None), default=600_000),
        )

    def _heartbeats(self, reverse: "FlowReader | None") -> HeartbeatsConfig:
        there = self.emits_heartbeats
        back = reverse is not None and reverse.emits_heartbeats
        emit: EmitOn = "both" if there and back else "target" if there else "source" if back else "off"
        reader = self if there or reverse is None else reverse
        return HeartbeatsConfig(
            emit=emit,
            every_ms=reader._every_ms("emit.heartbeats.interval.seconds", 1) or 1_000,
            replicate=self._file.boolean(self.find("heartbeats.replication.enabled"), True),
            replication_factor=reader._internal_factor("heartbeats.topic.replication.factor"),
        )

    def _records(self, between: str) -> Mm2RecordsConfig:
        file = self._file
        emitted = file.boolean(self.find("emit.offset-syncs.enabled"), True)
        location: OffsetSyncsOn = file.choice(self.find("offset-syncs.topic.location"), _LOCATION, "source")
        # The separator of the flow also applies to internal topics, unless the file disables this.
        own = file.boolean(self.find("replication.policy.internal.topic.separator.enabled"), True)
        return Mm2RecordsConfig(
            checkpoints=self._on("emit.checkpoints", True),
            checkpoints_every_ms=self._every_ms("emit.checkpoints.interval.seconds", 60) or 60_000,
            checkpoints_replication_factor=self._internal_factor("checkpoints.topic.replication.factor"),
            offset_syncs=location if emitted else "off",
            offset_syncs_replication_factor=self._internal_factor("offset-syncs.topic.replication.factor"),
            offset_lag_max=file.integer(self.find("offset.lag.max"), 100, 0, 2**63 - 1),
            separator=between if own else ".",
        )

    def _on(self, name: str, default: bool) -> bool:
        """Return whether a MirrorMaker 2 task, such as `emit.heartbeats`, is enabled. It is enabled if `NAME.enabled`
        is true and the interval `NAME.interval.seconds` is not negative.

        A negative interval means that MirrorMaker 2 never performs the task.
        """
        on = self._file.boolean(self.find(f"{name}.enabled"), default)
        return on and self._every_ms(f"{name}.interval.seconds", 1) is not None

    def _refresh(self, name: str) -> int | None:
        return self._every_ms(f"{name}.interval.seconds", 600) if self._on(name, True) else None

    def _every_ms(self, name: str, default_s: int) -> int | None:
        """Return an interval in milliseconds, or None if the file sets a negative interval, which means never.

        An interval of more than 30 days is reduced to 30 days.
        """
        found = self.find(name)
        seconds = self._file.integer(found, default_s, -_SECONDS, _SECONDS)
        if seconds == 0 and found is not None:
            self._file.wrong(found, "a whole number of seconds from 1, or a negative one for never")
        return None if seconds < 0 else min(seconds * 1_000, MONTH_MS)

    def _patterns(self, name: str, default: tuple[str, ...]) -> tuple[str, ...]:
        return self._file.items(self.find(name), default, lambda item: python_regex(str(item)))

    def _factor(self, name: str, default: int) -> ReplicationFactor:
        found = self.find(name)
        factor = self._file.integer(found, default, -1, 32_767)
        if factor == 0 and found is not None:
            self._file.wrong(found, "a whole number from 1 to 32767, or -1 for the brokers' default")
        return "broker" if factor < 1 else factor

    def _internal_factor(self, name: str) -> InternalFactor:
        factor = self._factor(name, 3)
        return factor if isinstance(factor, int) else "broker"

    def _separator(self) -> str:
        found = self.find("replication.policy.separator")
        if found is None:
            return "."
        try:
            return separator(found.text)
        except ValueError as rule:
            self._file.wrong(found, f"{rule}")
            return "."

    def _consumer(self, name: str) -> PropertyValue | None:
        """Return a property of the consumer that reads the source. If several keys in the file set it, their order of
        precedence is the same as in MirrorMaker 2."""
        flow = f"{self._from}->{self._to}"
        return self._file.find(
            f"{flow}.source.consumer.{name}", f"{self._from}.consumer.{name}", f"{flow}.consumer.{name}"
        )
