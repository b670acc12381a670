"""Discovers topics on the source, creates target topics, and syncs configs, ACLs and deletions."""
