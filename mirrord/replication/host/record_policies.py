"""Record policies on the second path: a filter decides which records of a batch are copied, and a transform changes the
copied records.

A batch is rebuilt in the same way as without policies (see `mirrord.replication.host.batch_rebuild`). For records that
the filter rejects, the lane records `filtered` verdicts with the exact offsets. Ordinals count only records that are
copied.

Before the lane writes, it records in the ledger which offset has which ordinal (see `mirrord.replication.lane.intake`).
It does not call the filter again for these offsets, so that the offset map stays correct even if a policy later decides
differently.
"""

import re
from collections.abc import Callable
from functools import partial

from mirrord.config.schema import FlowConfig
from mirrord.kafka.protocol.record import DecodedRecord
from mirrord.kafka.records.record_decoding import reading
from mirrord.kafka.records.steps import Steps, cleared
from mirrord.ledger.facts.core import Reason, Verdict
from mirrord.model.errors import ConfigError, PolicyFault, PolicyUnusable
from mirrord.replication.host.batch_rebuild import building, rebuilding
from mirrord.replication.lane.second_path import PolicyRefused, RebuildRequest, RebuiltBatch
from policies.flow_policies import record_filter_of, record_transform_of
from policies.guarded_records import GuardedFilter, GuardedTransform

Rebuilding = Callable[[RebuildRequest], Steps[RebuiltBatch | None]]
"""A function that rebuilds a batch in steps."""
Decide = Callable[[DecodedRecord, bool | None], DecodedRecord | Reason]
"""A function that decides whether a record is copied, and how it is changed, such as `RecordPolicies.decide`."""


class RecordPolicies:
    """The record policies of one flow: its filter and its transform."""

    def __init__(self, flow: FlowConfig) -> None:
        self._config = flow.records
        self._rebuild_bytes = flow.limits.rebuild_bytes
        self._topics = [re.compile(pattern) for pattern in flow.records.topics]
        self._filter: GuardedFilter | None = None
        self._transform: GuardedTransform | None = None
        self._fault = ""
        self.fingerprint = flow.isolation
        """Fingerprint of the configuration that determines which records are copied from topics with record
        policies."""
        if flow.records.is_on:
            rules = flow.records
            parts = (rules.filter, rules.filter_settings, rules.transform, rules.transform_settings)
            self.fingerprint += f" {parts!r}"
        try:
            self._filter, self._transform = record_filter_of(flow), record_transform_of(flow)
        except ConfigError as fault:
            self._fault = str(fault)

    def concerns(self, source_topic: str) -> bool:
        """Return whether the record policies apply to this source topic."""
        return self._config.is_on and any(pattern.fullmatch(source_topic) for pattern in self._topics)

    def rebuilder(self, source_topic: str) -> Rebuilding:
        """Return the function that rebuilds batches of a topic in steps, with or without policies. The steps raise
        ValueError if the batch cannot be read, and PolicyRefused if a policy fails for a record."""
        if self.concerns(source_topic):
            return self.rebuilding
        return partial(rebuilding, rebuild_bytes=self._rebuild_bytes)

    def changing(self, source_topic: str) -> Callable[[DecodedRecord], DecodedRecord] | None:
        """Return the function that applies the transform to a record of the topic. Return None if the records of the
        topic are not changed. The function raises PolicyUnusable if a policy cannot be loaded."""
        may_change = self._transform is not None or self._fault
        return self._changed if may_change and self.concerns(source_topic) else None

    def decider(self, source_topic: str) -> Decide | None:
        """Return the function that decides on a record of the topic (`decide`). Return None if the record policies do
        not apply to the topic."""
        return self.decide if self.concerns(source_topic) else None

    def rebuilding(self, request: RebuildRequest) -> Steps[RebuiltBatch | None]:
        """Rebuild a batch in steps. The new batch contains only the records that the filter keeps, and the transform is
        applied to them.

        Raises PolicyRefused if a policy fails for a record that must not be skipped.
        """
        if self._fault:
            raise PolicyRefused(str(self._unusable()), request.from_offset)
        source = yield from reading(request.buffer, request.start, request.end, self._rebuild_bytes)
        kept: list[DecodedRecord] = []
        left_out: list[Verdict] = []
        for number, record in enumerate(source.records):
            if number % source.at_once == 0 < number:
                yield None
            if record.offset < request.from_offset:
                continue
            if len(kept) == request.most or record.offset >= request.until_offset:
                break
            try:
                copy = self.decide(record, request.decided.keeps(record.offset))
            except PolicyFault as fault:
                raise PolicyRefused(str(fault), record.offset) from fault
            if isinstance(copy, str):
                _leave_out(left_out, record.offset, copy)
                continue
            kept.append(copy)
        if not kept:
            return RebuiltBatch(bytearray(), (), -1, tuple(left_out)) if left_out else None
        made = yield from building(source, kept, request, left_out)
        kept.clear()
        yield from cleared(source.records, source.at_once)
        return made

    def decide(self, record: DecodedRecord, known: bool | None) -> DecodedRecord | Reason:
        """Return the record as it is written to the target, or the reason why it is skipped. `known` is the decision in
        the ledger on whether the record is copied, or None if there is none.

        Raises PolicyUnusable if a policy cannot be loaded, and PolicyFault if a policy fails for a record that must not
        be skipped.
        """
        if self._fault:
            raise self._unusable()
        try:
            if not (self._keeps(record) if known is None else known):
                return "filtered"
            return self._changed(record)
        except PolicyFault:
            if self._config.on_error == "halt" or known:
                raise
            return "rejected"

    def _keeps(self, record: DecodedRecord) -> bool:
        return self._filter is None or self._filter.keeps(record)

    def _unusable(self) -> PolicyUnusable:
        return PolicyUnusable(f"a policy cannot be used here: {self._fault}")

    def _changed(self, record: DecodedRecord) -> DecodedRecord:
        if self._fault:
            raise self._unusable()
        if self._transform is None:
            return record
        made = self._transform.changed(record)
        return DecodedRecord(record.offset, made.time_ms, made.key, made.value, made.headers)


def _leave_out(verdicts: list[Verdict], offset: int, reason: Reason) -> None:
    if verdicts and verdicts[-1].end == offset and verdicts[-1].reason == reason:
        verdicts[-1] = Verdict(verdicts[-1].start, offset + 1, reason)
    else:
        verdicts.append(Verdict(offset, offset + 1, reason))
