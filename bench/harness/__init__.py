"""harness: see docs/architecture.md."""
