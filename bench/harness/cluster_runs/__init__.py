"""cluster_runs: see docs/architecture.md."""
