"""peers: see docs/architecture.md."""
