"""The exchange of tokens between two brokers. Pure.

May import ``srtm.token_bucket`` and ``srtm.topics``; no numpy, because brokers import it. Begin with ``exchange``.
"""
