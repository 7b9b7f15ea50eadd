"""What was measured and what it says: samples, intervals, verdicts, pictures, pages, and where they were made.

It may import ``machine`` and ``systems``. Begin with ``comparison`` and ``publish``.
"""
