"""Simulated traffic, brokers, buckets and limiters in virtual time.

It may import ``harness`` and ``data``. Begin with ``traffic`` and ``brokers``.
"""
