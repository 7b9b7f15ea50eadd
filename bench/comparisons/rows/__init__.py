"""The rows of ``srtm bench nsqd``, a module each: a claim, what measures a round, what must be reached.

It may import ``harness``. Begin with ``steady``.
"""
