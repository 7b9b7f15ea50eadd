"""One broker: the engine owns every message (``broker/engine``, Rust); this package runs it: admin HTTP, sync with the distributor, leases, discovery."""
