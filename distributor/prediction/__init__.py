"""What a layout would do: replay of recorded arrivals, and the test that decides a measurement.

May import: model, placement, srtm. Begin with ``forecast``.
"""
