"""token_bucket: see docs/architecture.md."""
