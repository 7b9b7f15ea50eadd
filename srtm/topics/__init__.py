"""Owns a topic as its operator describes it: topic file, promise, publishers, adaptation, lease, broker capacity.

Pure but for ``file``, which reads files. May import ``protocol`` (rules of names) and ``units``. Begin with ``spec``.
"""
