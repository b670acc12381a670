"""What a lane knows and decides about its source partition: epochs, gaps, truncation, and the origin of batches."""
