"""hostile: see docs/architecture.md."""
