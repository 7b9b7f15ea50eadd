"""history: see docs/architecture.md."""
