"""Topics: discovers them at the source, creates them at the target, and syncs configs and ACLs."""
