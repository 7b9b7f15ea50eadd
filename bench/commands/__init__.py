"""commands: see docs/architecture.md."""
