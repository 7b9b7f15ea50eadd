"""The layout loop, which finds who is where by measurement (the paper's step 3), as a state machine without I/O.

May import: model, placement, prediction, srtm. Begin with ``layout_loop``; ``paper`` is the baseline of the paper.
"""
