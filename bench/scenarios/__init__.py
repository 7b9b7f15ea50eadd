"""scenarios: see docs/architecture.md."""
