"""admin: see docs/architecture.md."""
