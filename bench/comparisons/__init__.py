"""comparisons: see docs/architecture.md."""
