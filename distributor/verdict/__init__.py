"""Whether a topic keeps its promise, and what makes it late, from what its brokers report. Pure.

May import: srtm. Begin with ``kept``, then ``why``.
"""
