"""Processes on the testbed's hosts that send, and that hear and stamp what arrives.

It may import ``testbed.net`` and ``harness``. Begin with ``listening``.
"""
