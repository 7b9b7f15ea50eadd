"""gdrl: see docs/architecture.md."""
