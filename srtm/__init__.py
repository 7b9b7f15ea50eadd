"""SRTM: a pub/sub messaging service for IoT that keeps a latency promise.

Where things are (docs/architecture.md has the flows and contracts):

* ``srtm``: the shared kernel (bucket, splitting, sizing, topic specs, wire codec, control-plane messages), the client library, the command.
* ``broker``: the data plane in Rust (``broker/engine``) and its trio service.
* ``distributor``: brokers and topics, allocation, leases.
* ``adaptor``: policies that keep a split right while traffic moves.
* ``bench``: load generator, experiments, the demo.
"""

__version__ = "0.1.0"
