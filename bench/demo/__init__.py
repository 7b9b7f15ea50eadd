"""``srtm demo``: the sensors' topic on real brokers, spread blindly and placed by SRTM.

It may import ``harness``, ``console`` and ``data``. Begin with ``run``.
"""
