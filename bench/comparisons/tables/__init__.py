"""Tables of rows, each measured by one command: ``srtm bench nsqd``, ``srtm bench mqtt``.

It may import ``rows``, ``mqtt``, ``builds``, ``console`` and ``harness``. Begin with ``compare``; ``nsqd`` and ``mqtt``
name the rows.
"""
