"""The command line of ``srtm bench``: options in, exit status out.

It may import every other package of bench. Begin with ``main``.
"""
