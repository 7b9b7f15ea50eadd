"""Brokers and peers as processes under test, each with its ports and its data folder.

It may import ``machine``. Begin with ``systems``.
"""
