"""registry: see docs/architecture.md."""
