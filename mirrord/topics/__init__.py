"""Discovers topics at the source, creates target topics, and syncs configs, ACLs and deletions."""
