"""fitting: see docs/architecture.md."""
