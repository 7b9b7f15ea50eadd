"""``srtm bench adaptation``: traffic moves between two real brokers, and the split follows.

It may import ``harness``. Begin with ``step_runs``.
"""
