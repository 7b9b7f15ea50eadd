"""console: see docs/architecture.md."""
