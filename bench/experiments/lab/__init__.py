"""What figures have in common: layouts of publishers on brokers, points, theory, and how a figure is kept and shown.

It may import ``simulation`` and ``harness``. Begin with ``figure`` and ``layouts``.
"""
