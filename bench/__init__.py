"""Measuring: the load generator, experiments, peers, the demo."""
