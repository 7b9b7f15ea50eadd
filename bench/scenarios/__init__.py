"""``srtm bench run``: scenario files of one's own, their traffic and their verdict.

It may import ``console`` and ``harness``. Begin with ``file``.
"""
