"""machine: see docs/architecture.md."""
