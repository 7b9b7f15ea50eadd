"""``srtm bench peers``: the same load on brokers of other kinds, each in its own protocol.

It may import ``rows`` and ``harness``. Begin with ``runs``.
"""
