"""demo: see docs/architecture.md."""
