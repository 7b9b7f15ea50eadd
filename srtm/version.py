"""The version of SRTM, as ``srtm --version``, user agents and JSON documents state it."""

__version__ = "0.1.0"
