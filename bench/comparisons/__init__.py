"""Our broker beside other systems, under attack, and beside another build of itself.

It may import ``harness`` and ``console``. Begin with ``rows.row_runs`` and ``builds``.
"""
