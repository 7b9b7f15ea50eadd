"""Table 1 of the paper: how long fitting takes, on real brokers and in virtual time.

It may import ``lab``, ``comparisons.rows``, ``simulation`` and ``harness``. Begin with ``fitted_rows``.
"""
