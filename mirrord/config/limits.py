"""The resource limits of a flow: the table `limits` in conf.toml."""

from typing import Annotated

import msgspec

from mirrord.config.key_declarations import Key
from mirrord.config.value_kinds import RATE, number, size


class LimitsConfig(msgspec.Struct, frozen=True):
    """Resource limits of a flow."""

    in_flight_bytes: Annotated[
        int,
        Key(
            size(1 << 20, 1 << 40),
            "Maximum number of bytes that a replicator has fetched from the source and that the target has not "
            "acknowledged yet. This is a hard limit on the memory that a replicator uses for records.",
        ),
    ] = 64 << 20
    map_bytes: Annotated[
        int,
        Key(
            size(8 << 20, 1 << 40),
            "Maximum memory for the offset map in each process that holds it. Any excess is kept in a temporary file.",
        ),
    ] = 64 << 20
    rebuild_bytes: Annotated[
        int,
        Key(
            size(1 << 20, 1 << 30),
            "Maximum size of a batch's records after decompression, wherever mirrord has to read them: on the second "
            "path, in comparisons and in audits. A partition halts before a larger batch that has to be rebuilt. A "
            "batch that is copied raw is not decompressed.",
        ),
    ] = 256 << 20
    topics: Annotated[
        int,
        Key(
            number(1, 1_000_000),
            "Maximum number of topics that the flow copies. Further topics are reported and not copied. A topic that "
            "is already copied is never left out.",
        ),
    ] = 10_000
    partitions: Annotated[
        int,
        Key(
            number(1, 1_000_000),
            "Maximum number of partitions that the flow copies. A new topic that does not fit is reported and not "
            "copied, and so are partitions that are added to a topic. A partition that is already copied is never "
            "left out.",
        ),
    ] = 50_000
    rate_bytes_per_s: Annotated[
        int | None,
        Key(
            RATE,
            "Maximum fetch rate of the whole flow. All replicators that host lanes share this rate equally.",
            name="rate",
            unset="unlimited",
        ),
    ] = None
