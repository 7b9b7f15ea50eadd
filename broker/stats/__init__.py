"""stats: see docs/architecture.md."""
