"""probes: see docs/architecture.md."""
