"""prediction: see docs/architecture.md."""
