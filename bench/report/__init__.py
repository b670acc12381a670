"""From results to pages: tables, plots, docs/measurements.md, and the figures in README.md and docs/profile.md."""
