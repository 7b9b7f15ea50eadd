"""Owns what a plan foretells beside what real brokers do.

It may import ``bench.experiments.lab`` and ``bench.harness``. Begin with ``plan_minutes``.
"""
