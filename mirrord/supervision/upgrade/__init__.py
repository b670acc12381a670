"""One daemon replaces another without a pause of the flows."""
