"""The search for a layout by measurement (the paper's step 3), as a state machine without I/O.

May import: model, placement, prediction, srtm. Begin with ``state_machine``; ``paper`` is the baseline of the paper.
"""
