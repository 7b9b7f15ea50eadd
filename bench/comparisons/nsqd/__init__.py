"""nsqd: see docs/architecture.md."""
