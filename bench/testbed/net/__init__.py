"""The testbed's network: namespaces, a switch, cables, links that delay and lose packets.

It may import ``harness.machine``. Begin with ``layout``.
"""
