"""leadership: see docs/architecture.md."""
