"""What all commands of bench share: options, chosen names, exit status.

It may import ``harness``. Begin with ``options``.
"""
