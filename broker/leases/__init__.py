"""leases: see docs/architecture.md."""
