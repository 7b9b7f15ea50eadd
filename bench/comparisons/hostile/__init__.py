"""``srtm bench hostile``: the p99 of a calm flow while one client attacks the broker.

It may import ``rows``, ``builds``, ``console`` and ``harness``. Begin with ``attack_runs``.
"""
