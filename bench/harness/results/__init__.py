"""What was measured and what it says: samples, intervals, verdicts, tables, pictures, and where they were made.

It may import ``machine`` and ``systems``. Begin with ``comparison``.
"""
