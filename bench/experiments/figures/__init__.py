"""figures: see docs/architecture.md."""
