"""What mirrord has last seen of the source cluster, so that it can be shown when the source is gone.

These records are stored in the state topic and have the same form as those of `mirrord.ledger.source_ends`. Older
versions of mirrord ignore them: to them, each is about a topic without partitions.

Input: what the holder of the lease has seen. Output: the records to write, and, for a reader, what they say.
"""
