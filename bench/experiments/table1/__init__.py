"""table1: see docs/architecture.md."""
