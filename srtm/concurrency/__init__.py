"""concurrency: see docs/architecture.md."""
