"""relief: see docs/architecture.md."""
