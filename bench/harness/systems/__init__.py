"""systems: see docs/architecture.md."""
