"""topics: see docs/architecture.md."""
