"""Runs on brokers of a cluster: a broker's HTTP API, traces, assigned traffic, capacity, recovery after a change.

It may import ``machine``, ``results`` and ``load``. Begin with ``trace``.
"""
