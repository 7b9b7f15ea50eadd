"""``srtm bench`` and ``srtm demo``: whatever measures, simulates or shows the product.

It may import every service. Begin with ``commands.main``.
"""
