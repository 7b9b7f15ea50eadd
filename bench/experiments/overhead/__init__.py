"""overhead: see docs/architecture.md."""
