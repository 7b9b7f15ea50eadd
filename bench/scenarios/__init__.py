"""``srtm bench run``: scenario files, their traffic and verdict. ``srtm bench topic``: the same of a declared topic.

It may import ``console`` and ``harness``. Begin with ``file``, or with ``declared``.
"""
