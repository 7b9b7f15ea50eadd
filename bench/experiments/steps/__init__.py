"""steps: see docs/architecture.md."""
