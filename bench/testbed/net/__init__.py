"""net: see docs/architecture.md."""
