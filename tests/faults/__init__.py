"""faults: see docs/architecture.md."""
