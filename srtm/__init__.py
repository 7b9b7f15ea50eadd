"""SRTM: a pub/sub messaging service for IoT that keeps a latency promise.

Where things are (docs/architecture.md has the flows and contracts):

* ``srtm``: the shared kernel (bucket, splitting, sizing, topic specs, wire codec, control-plane messages), the client
  library, the command.
* ``broker``: the data plane in Rust (``broker/engine``) and its trio service.
* ``distributor``: brokers and topics, allocation, leases.
* ``adaptor``: policies that keep a split right while traffic moves.
* ``bench``: load generator, the floor to compare with, experiments, the demo.
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
