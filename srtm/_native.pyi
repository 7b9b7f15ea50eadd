"""The Rust extension: broker engine, exact token bucket, load generator, simulated broker. The whole boundary is here.

Configuration goes down once, as keyword arguments or JSON; snapshots and events are pulled up as JSON bytes. Rust
never calls Python. Calls
that may wait release the GIL. Errors are ``ValueError`` (bad configuration), ``OSError`` (port in use, no such
address) and ``RuntimeError`` (engine stopped).
"""

from collections.abc import Sequence
from typing import final

from typing_extensions import Buffer

__all__ = ["Bucket", "ChangeDetector", "Engine", "Flood", "LoadGen", "Measurement", "Station", "__version__"]
__version__: str

@final
class Bucket:
    """The engine's token bucket, for differential tests against ``srtm.token_bucket.bucket``. Rates in
    micro-messages/s, bursts in micro-messages, times in ns."""

    def __new__(cls, rate_micro: int, burst_micro: int, at_ns: int, full: bool = True) -> Bucket: ...
    def take(self, cost: int, at_ns: int) -> int | None:
        """Release instant of ``cost`` tokens asked for at ``at_ns`` (FCFS), or None: never under these parameters."""
    def debit(self, cost: int, at_ns: int) -> None: ...
    def set(self, rate_micro: int, burst_micro: int, at_ns: int) -> list[int | None]:
        """New parameters; returns the new release instants of the takes that still waited at ``at_ns``, in order."""
    def fill_units(self, at_ns: int) -> int:
        """Tokens in the bucket at ``at_ns`` in units of 1e-15 token; what waits has not been paid for."""

@final
class ChangeDetector:
    """The engine's detector of changes of a rate of arrivals, for tests and simulations (``engine/src/change.rs``)."""

    SLOT_NS: int  # what the engine counts in
    def __new__(cls) -> ChangeDetector: ...
    @property
    def is_settled(self) -> bool:
        """The rate is known well enough for a change to be seen."""
    def note(self, count: int) -> tuple[int, int] | None:
        """Messages of the next slot. A change: how many came in how many slots since, up to this one."""

@final
class Engine:
    """The data plane of one broker: a reactor thread of its own. Threads: any; every method may be called from the
    trio thread."""

    def __new__(cls, config: bytes) -> Engine:
        """``config``: JSON, the fields and defaults of ``broker.config.EngineConfig``; unknown fields are refused."""
    def start(self) -> tuple[int | None, int | None, int | None]:
        """Bind everything, start the reactor thread, return the ports of ``tcp_address``, ``http_address`` and
        ``https_address`` (None: a Unix socket, or off). Raises OSError; its ``filename`` is the setting whose address
        cannot be had, or "data_path"; ValueError if there can be no packet clock here (``arrival_clock``)."""
    def stop(self, patience_ms: int) -> bool:
        """Close the listener and all connections, save what is queued to ``data_path``, join the thread. False if it
        did not end and did nothing to a file for ``patience_ms``, or not everything could be saved (of the
        ``disk_failed`` events one counts the messages, others may say more). Idempotent."""
    def fileno(self) -> int:
        """An eventfd that is readable while ``drain_events`` or ``drain_requests`` has something. The former resets it:
        call it first."""
    def drain_events(self) -> bytes:
        """JSON list of events since the last call, oldest first; resets the eventfd. See ``broker.events``."""
    def drain_requests(self) -> list[tuple[int, str, str, list[tuple[str, str]], bytes, bool]]:
        """HTTP requests for Python since the last call: (id, method, target, headers with names in lower case, body,
        whether it came over TLS). Each is to be answered by ``respond``; its connection waits until then."""
    def respond(self, id: int, status: int, headers: Sequence[tuple[str, str]], body: bytes) -> bool:
        """Answer a request (Content-Length, Date and Connection are added). False: its connection is gone. ValueError:
        a control character in a header."""
    def open_http(self) -> None:
        """Accept connections of the HTTP port, which wait until then."""
    def close_http(self) -> None:
        """Accept no more connections of the HTTP port; idle ones end, the others with their next answer."""
    def finish_list(self) -> None:
        """Make no more topics and channels for clients: what there is, is what outlives the process."""
    def set_health(self, health: str) -> None:
        """What ``GET /ping`` says: "OK", or why not (with status 500)."""
    def snapshot(self, topic: str, channel: str, clients: bool) -> bytes:
        """JSON of everything that Python may see, taken between two turns; "" = all topics. See ``broker.snapshot``."""
    def histories(self, topics: Sequence[str], since: int) -> bytes:
        """JSON of what came to these topics since bin number ``since`` (0: since as long as is kept, some 12 s), in
        bins that are over; a topic without a limit, or to which nothing was, is left out. See ``broker.history.bins``.
        """
    def watch(self, topics: Sequence[str], no_longer: Sequence[str]) -> None:
        """Look for changes of traffic (event ``moved``) and for an end of rest (``restless``) in ``topics``, too, from
        now on, and in ``no_longer`` only, as in any other, for a second after their ``histories`` were asked for. Those
        that are not there are waited for."""
    def create_topic(self, topic: str) -> None: ...
    def refusal_to_make(self, topic: str, channel: str) -> str | None:
        """Why a client may not have this topic, or this channel of one ("": the topic itself), made for it: a limit,
        which counts as met. None: it may, or it is there."""
    def set_hold_new_topics(self, hold: bool) -> None:
        """Whether topics made from now on, however that is, wait for ``release_topic`` (``hold_new_topics``)."""
    def delete_topic(self, topic: str) -> bool: ...
    def empty_topic(self, topic: str) -> bool: ...
    def pause_topic(self, topic: str, paused: bool) -> bool: ...
    def release_topic(self, topic: str) -> bool:
        """Let a topic go that was created held (``hold_new_topics``): its messages may move to channels. False: no
        such topic."""
    def create_channel(self, topic: str, channel: str) -> bool: ...
    def delete_channel(self, topic: str, channel: str) -> bool: ...
    def empty_channel(self, topic: str, channel: str) -> bool: ...
    def pause_channel(self, topic: str, channel: str, paused: bool) -> bool: ...
    def set_bucket(
        self,
        topic: str,
        rate_micro: int,
        burst_micro: int,
        reject: bool,
        max_backlog: int,
        max_backlog_bytes: int,
        version: int,
        full: bool,
        expires_ns: int | None = None,
    ) -> bool:
        """Create (full or empty) or change the topic's bucket; creates the topic. False: refused, ``version`` is
        older than the one in force. From ``expires_ns`` (CLOCK_BOOTTIME) on the bucket lets nothing go; None: never."""
    def renew_leases(self, renewals: Sequence[tuple[str, int, int]]) -> None:
        """(topic, version, new ``expires_ns``): for the shares that are in force under that version. One that ended
        begins again, empty."""
    def clear_bucket(self, topic: str) -> bool:
        """Remove the limit: what waits is released at once. False: none there."""
    def set_publishers(self, topic: str, publishers: Sequence[str], version: int) -> None:
        """Ids assigned to this broker: others that publish here are strangers (event, counter ``undeclared``)."""
    def move_publisher(self, topic: str, publisher_id: str, address: str, version: int) -> int:
        """Send ``_move_ ADDRESS VERSION`` to the aware connections of that publisher; returns to how many."""
    def awaits_authorization(self, connection: int) -> bool:
        """Whether that connection still waits for ``set_authorization``."""
    def set_authorization(self, connection: int, answer: bytes | None) -> str | None:
        """Answer an ``AuthAsked``: an auth server's JSON, or None: there is none. Gives why the JSON is refused, if it
        is."""
    def set_accepting(self, accepting: bool, reason: str) -> None:
        """While false, every publish is answered E_PUB_FAILED with ``reason``. True also says that all limits are in
        place: what an earlier incarnation left waiting for tokens goes, where its topic has none."""
    def trace(self, topic: str) -> tuple[list[str], bytes, bytes, bytes, bytes, bytes, bytes] | None:
        """(publisher names, then little-endian columns: publisher index u32, arrival_ns, due_ns, released_ns, sent_ns
        i64 (0: not yet), share_version i64)."""
    def histogram(self, topic: str, kind: str, window: str) -> bytes | None:
        """HDR V2 (deflate, base64) of ``access|processing|consumer_wait|total`` over ``since_start|last_60s``, values
        in ns."""

@final
class Measurement:
    """What arrives at a limited topic from its making on: how much, how late. Times in ns; latency is access +
    processing + network (half the smallest round trips of the publisher's connections and of the subscribers', as far
    as the kernel knows them), without the wait for a subscriber. Threads: any. RuntimeError: the engine has stopped."""

    def __new__(cls, engine: Engine, topic: str, target_ns: int) -> Measurement:
        """``target_ns``: over it a message is late; also the length of an interval. ValueError: not above 0, or the
        topic has no limit."""
    def advance(self) -> None:
        """Take in what was sent since the last time. Costs by what is new."""
    def intervals(self, end: bool) -> tuple[list[int], list[int], list[int], list[int]]:
        """Numbers of the intervals that are over and all sent, since the last time (0: it began then; those without a
        message are left out), messages that arrived in each, those of them that were late, sums of their latencies.
        ``end``: the present one is over, too."""
    def percentiles(self, percentile: float) -> tuple[int, int, int, int]:
        """Messages since it began, and their percentile of access, of processing and of latency."""
    def recent(self, percentile: float) -> tuple[int, int, int]:
        """Messages since this was asked last, those of them that were late, their percentile of latency."""
    def gaps(self) -> tuple[int, int]:
        """Messages that the trace dropped before they were sent; those that nobody had taken 2 s after they were let
        go."""
    def recording(self) -> tuple[list[str], list[int], int, list[int], list[int], list[int]]:
        """What was measured and is still in the trace, in order of decision: publishers, index into these, arrival of
        the first (wall clock), each arrival less the one before, due less arrival, sent less due (without the wait)."""

@final
class Flood:
    """A closed loop on a thread of its own: how much a broker carries. See ``bench.harness.load.flood`` for the
    plan."""

    def __new__(cls, plan: bytes) -> Flood:
        """``plan``: JSON, the fields of ``bench.harness.load.flood.FloodPlan``; unknown fields are refused
        (ValueError)."""
    def start(self) -> None: ...
    def wait(self, timeout_ms: int) -> bool:
        """True when the flood has ended. Releases the GIL."""
    def stop(self) -> None:
        """End early, which is a failure; close the connections that a finished one keeps."""
    def result(self) -> bytes:
        """JSON of the finished flood. RuntimeError before the end, OSError for what the world refused."""

@final
class LoadGen:
    """One run of the load generator: its own threads, its own codec. See ``bench.harness.load.workload`` for the
    plan."""

    def __new__(cls, plan: bytes) -> LoadGen:
        """``plan``: JSON, the fields of ``bench.harness.load.workload.Plan``; unknown fields are refused
        (ValueError)."""
    def start(self) -> None: ...
    def progress(self) -> bytes:
        """JSON: phase, sent, received, lateness so far. Any time."""
    def wait(self, timeout_ms: int) -> bool:
        """True when the run has ended. Releases the GIL."""
    def stop(self) -> None:
        """End early; what was measured so far is the result."""
    def result(self) -> bytes:
        """JSON of the finished run, histograms as HDR V2 base64. RuntimeError before the end."""

@final
class Station:
    """A simulated broker: the engine's bucket (full at 0) and, behind it, servers. See ``bench.simulation.brokers``."""

    NEVER_NS: int  # access delay of what no token ever comes for
    def __new__(
        cls, rate_micro: int, burst_micro: int, service_ns: Sequence[int], servers: int = 1, seed: int = 1
    ) -> Station:
        """``service_ns``: times that a message takes of a server, each as likely as the others. ValueError where
        there is none, one below 0, or no server."""
    def run(self, arrival_ns: Buffer) -> tuple[bytes, bytes]:
        """Access and processing delay, ns, of each arrival (int64, in order, none before those of the last call), as
        int64. Releases the GIL."""
