"""``srtm bench nsqd``: all rows beside the real nsqd and the floor.

It may import ``rows``, ``builds``, ``console`` and ``harness``. Begin with ``compare``.
"""
