"""sync: see docs/architecture.md."""
