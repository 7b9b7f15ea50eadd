"""lab: see docs/architecture.md."""
