"""Replication: the path of a record batch from the source partition to the target partition.

The path of one batch, in order:

1. `mirrord.kafka.client.request_pipeline` receives a fetch response.
2. `mirrord.replication.host.fetcher` divides the response into one chunk for each lane.
3. `mirrord.replication.host.lane_host` passes each chunk to its lane.
4. `mirrord.replication.lane.step` decides what the lane does next.
5. `mirrord.replication.lane.intake` processes the batches of the chunk.
6. `mirrord.kafka.protocol.record_batch` gives each batch a new header.
7. `mirrord.replication.lane.in_flight` sends the batches, and processes their acknowledgements.
8. `mirrord.replication.host.producer` writes the produce request.

The `flow_control` folders contain mechanisms that you can skip when you read the code for the first time.
"""
