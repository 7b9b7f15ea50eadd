"""SRTM: a pub/sub messaging service for IoT that keeps a latency promise.

``srtm.Publisher`` and ``srtm.Subscriber`` run under asyncio and trio; ``srtm.blocking`` has both for threads. All
errors are ``srtm.SrtmError``. Several programs of a service are here too: this package is the shared kernel (the client
library, the ``srtm`` command, and what all services use). It imports no service; only ``srtm/cli.py``,
``commands/services.py`` and ``commands/benches.py`` start some. Begin with ``srtm.client`` or ``srtm.topics`` (what a
topic is).

The other packages: ``broker`` (the engine in Rust and its service), ``distributor`` (topics, placement, shares),
``adaptor`` (changes shares while traffic moves), ``bench`` (measurements and the demo).
"""

from importlib import import_module
from typing import TYPE_CHECKING

from srtm.version import __version__

if TYPE_CHECKING:
    from srtm import blocking
    from srtm.client.publisher import Publisher
    from srtm.client.subscriber import Delivery, Subscriber
    from srtm.errors import (
        BadInput,
        Closed,
        Misuse,
        NotFound,
        PeerError,
        PublishRefused,
        SrtmError,
        Unavailable,
    )
    from srtm.protocol import Receipt

__all__ = [
    "BadInput",
    "Closed",
    "Delivery",
    "Misuse",
    "NotFound",
    "PeerError",
    "PublishRefused",
    "Publisher",
    "Receipt",
    "SrtmError",
    "Subscriber",
    "Unavailable",
    "__version__",
    "blocking",
]

_ERRORS = ("BadInput", "Closed", "Misuse", "NotFound", "PeerError", "PublishRefused", "SrtmError", "Unavailable")
_HOMES = dict.fromkeys(_ERRORS, "srtm.errors") | {
    "Delivery": "srtm.client.subscriber",
    "Publisher": "srtm.client.publisher",
    "Receipt": "srtm.protocol",
    "Subscriber": "srtm.client.subscriber",
}


def __getattr__(name: str) -> object:
    """The client library is imported when it is asked for: a broker, which starts within 0.3 s, never does."""
    if name == "blocking":
        return import_module("srtm.blocking")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """What a program may use, imported yet or not."""
    return __all__
