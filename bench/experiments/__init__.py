"""The paper's figures and tables: a package or a module each.

It may import ``harness``, ``simulation`` and ``data``. Begin with ``run_figures`` (simulated) and ``real`` (measured).
"""
