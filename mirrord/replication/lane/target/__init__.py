"""What a lane knows and decides about its target partition: scans, holes, missing ordinals and in-doubt batches."""
