"""SRTM: a pub/sub messaging service for IoT that keeps a latency promise.

This package is the shared kernel: the client library, the ``srtm`` command, and what all services use. It imports no
service; only ``srtm/cli.py``, ``commands/services.py`` and ``commands/benches.py`` start some. Begin with
``srtm.client`` (to publish and subscribe) or ``srtm.topics`` (what a topic is).

The other packages: ``broker`` (the engine in Rust and its service), ``distributor`` (topics, placement, shares),
``adaptor`` (changes shares while traffic moves), ``bench`` (measurements and the demo).
"""

from importlib import import_module
from typing import TYPE_CHECKING

from srtm.version import __version__

if TYPE_CHECKING:
    from srtm.client.publisher import Publisher
    from srtm.client.subscriber import Subscriber

__all__ = ["Publisher", "Subscriber", "__version__"]

_HOMES = {"Publisher": "srtm.client.publisher", "Subscriber": "srtm.client.subscriber"}


def __getattr__(name: str) -> object:
    """The client library is imported when it is asked for: a broker, which starts within 0.3 s, never does."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
