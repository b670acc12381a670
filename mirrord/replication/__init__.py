"""Replication: the path of a record batch from the source partition to the target partition.

The path of one batch, in order:

1. `mirrord.kafka.client.request_pipeline` receives a fetch response.
2. `mirrord.replication.host.fetcher` hands its partitions out.
3. `mirrord.replication.host.lane_host` passes each to its lane.
4. `mirrord.replication.lane.step` decides what it means for the lane.
5. `mirrord.replication.lane.intake` walks over the batches.
6. `mirrord.kafka.protocol.record_batch` gives each a new header.
7. `mirrord.replication.lane.in_flight` sends them, and settles them when they are acknowledged.
8. `mirrord.replication.host.producer` writes the produce request.

The folders named `flow_control` hold mechanisms that a first reader may skip.
"""
