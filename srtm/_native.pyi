"""The Rust extension: broker engine, exact token bucket, limiter, load generator, simulated broker: the whole boundary.

Python passes configuration once, as arguments or JSON, and fetches snapshots and events as JSON. Rust never calls
Python. Calls that may wait release the GIL. Errors: ``ValueError`` (bad configuration), ``OSError`` (port in use, no
such address), ``RuntimeError`` (the engine has stopped).
"""

from collections.abc import Mapping, Sequence
from typing import Literal, final

from typing_extensions import Buffer

__all__ = [
    "Bucket",
    "ChangeDetector",
    "DriftDetector",
    "Engine",
    "Flood",
    "HttpSession",
    "LevelTable",
    "Limiter",
    "LoadGen",
    "Measurement",
    "RespSession",
    "SliceTable",
    "Station",
    "Throttle",
    "__version__",
]
__version__: str

@final
class Bucket:
    """The engine's token bucket, for differential tests against ``srtm.token_bucket.bucket``.

    Rates are in micro-messages/s, bursts in micro-messages, times in ns.
    """

    def __new__(cls, rate_micro: int, burst_micro: int, at_ns: int, full: bool = True) -> Bucket: ...
    def take(self, cost: int, at_ns: int) -> int | None:
        """Take ``cost`` tokens at ``at_ns``, first come first served, and return the release instant. None: never."""
    def debit(self, cost: int, at_ns: int) -> None:
        """Take ``cost`` tokens at once, even if there are too few."""
    def set(self, rate_micro: int, burst_micro: int, at_ns: int) -> list[int | None]:
        """Set rate and burst, and return the new instants of the takes that wait at ``at_ns``, in order."""
    def fill_units(self, at_ns: int) -> int:
        """Return the tokens at ``at_ns``, in units of 1e-15 token, before waiting takes are paid."""

@final
class ChangeDetector:
    """The engine's detector of changes of an arrival rate, for tests and simulations."""

    SLOT_NS: int  # length of the slots in which the engine counts arrivals
    def __new__(cls) -> ChangeDetector: ...
    @property
    def is_settled(self) -> bool:
        """Whether the rate is known well enough to detect a change."""
    def note(self, count: int) -> tuple[int, int] | None:
        """Note the messages of the next slot. If the rate changed, return (messages, slots) since the change."""

@final
class DriftDetector:
    """The engine's detector of a rate that drifts from that of the bins from number ``first`` on, likewise."""

    def __new__(cls, first: int) -> DriftDetector: ...
    def note(self, number: int, count: int) -> bool:
        """Note the messages of bin ``number``; bins between are empty. Return whether the rate has drifted."""

@final
class Engine:
    """The data plane of one broker, with its own reactor thread. Every method may be called from any thread."""

    def __new__(cls, config: bytes) -> Engine:
        """Configure an engine. ``config``: JSON with the fields of ``broker.config.EngineConfig``, no others."""
    def start(
        self,
    ) -> tuple[int | None, int | None, int | None, int | None, int | None, int | None, int | None]:
        """Bind all addresses, start the reactor thread and return the ports: TCP, HTTP, HTTPS, MQTT, MQTT in TLS, MQTT
        in WebSocket, and that in TLS.

        None: a Unix socket, or switched off. Raises OSError, whose ``filename`` is the setting with the unusable
        address, or "data_path". Raises ValueError if the packet clock (``arrival_clock``) is not possible here.
        """
    def renew_certificates(self, cert: str, key: str, root_ca: str) -> None:
        """Take other certificates and their key (PEM) for handshakes that begin from now on.

        Raises ValueError ("FIELD: RULE", as the constructor) for bad ones: those there are stay in force.
        """
    def stop(self, patience_ms: int) -> bool:
        """Close all connections, save queued messages to ``data_path`` and join the thread. Idempotent.

        False: the thread did not end and wrote no file for ``patience_ms``, or some messages could not be saved. Then a
        ``disk_failed`` event counts them.
        """
    def fileno(self) -> int:
        """Return an eventfd, readable while there are events or requests. ``drain_events`` resets it: call it first."""
    def drain_events(self) -> bytes:
        """Return the events since the last call as JSON (``broker.events``), oldest first. Resets the eventfd."""
    def drain_requests(self) -> list[tuple[int, str, str, list[tuple[str, str]], bytes, str]]:
        """Return the HTTP requests for Python since the last call: (id, method, target, headers, body, who asks).

        Header names are lower-case. Answer each by ``respond``; its connection waits until then.
        """
    def respond(self, id: int, status: int, headers: Sequence[tuple[str, str]], body: bytes) -> bool:
        """Answer a request. The engine adds Content-Length, Date and Connection.

        False: the connection is closed. Raises ValueError for a control character in a header.
        """
    def open_http(self) -> None:
        """Start to accept connections of the HTTP port; they wait until then."""
    def close_http(self) -> None:
        """Accept no more HTTP connections. Idle ones are closed, the others after their next answer."""
    def finish_list(self) -> None:
        """Create no more topics and channels for clients, so that the list of them can be saved."""
    def set_health(self, health: str) -> None:
        """Set the answer of ``GET /ping``: "OK", or the reason of a failure (with status 500)."""
    def snapshot(self, topic: str, channel: str, clients: bool) -> bytes:
        """Return the state between two turns, as JSON (``broker.snapshot``). ``topic`` "": all topics."""
    def histories(self, topics: Sequence[str], since: int) -> bytes:
        """Return the arrivals of topics in complete bins since bin ``since``, as JSON (``broker.history.bins``).

        ``since`` 0: as far back as bins are kept, about 12 s. Topics without a limit or without arrivals are left out.
        """
    def latency_buckets(self, topics: Sequence[str]) -> bytes:
        """Return latencies since the start of those of ``topics`` that exist, counted between twelve bounds around the
        promise, as JSON (``broker.stats.latency_buckets``)."""
    def set_promise(self, topic: str, latency_ns: int) -> None:
        """Set the latency that messages of a topic are to have at most. 0: none is promised."""
    def set_verdicts(self, verdicts: Sequence[tuple[str, str, float | None]]) -> None:
        """Replace the distributor's words on promises: (topic, word, latency in ms). MQTT clients may ask for them."""
    def watch(self, topics: Sequence[str], no_longer: Sequence[str]) -> None:
        """Detect changes of rate (event ``moved``) and unsteady traffic (``restless``) in ``topics`` from now on.

        In ``no_longer``, as in all other topics, they are detected only for 1 s after a call of ``histories``. Topics
        that do not exist yet are watched once they do.
        """
    def create_topic(self, topic: str) -> None:
        """Create a topic, if it does not exist."""
    def refusal_to_make(self, topic: str, channel: str) -> str | None:
        """Return the limit that forbids creating a topic, or a channel ("": none), for a client, and count it as met.

        None: it may be created, or it exists.
        """
    def set_hold_new_topics(self, hold: bool) -> None:
        """Set whether topics created from now on wait for ``release_topic``."""
    def delete_topic(self, topic: str) -> bool:
        """Delete a topic with its channels and messages. False: no such topic."""
    def delete_unused_topic(self, topic: str) -> bool:
        """Delete a topic without limit, message and channel that is not paused. False: it is another, or there is
        none."""
    def empty_topic(self, topic: str) -> bool:
        """Delete the messages queued at a topic. False: no such topic."""
    def pause_topic(self, topic: str, paused: bool) -> bool:
        """Pause or resume a topic. False: no such topic."""
    def release_topic(self, topic: str) -> bool:
        """Release a topic that was created on hold: its messages may go to channels. False: no such topic."""
    def create_channel(self, topic: str, channel: str) -> bool:
        """Create a channel, if it does not exist. False: no such topic."""
    def delete_channel(self, topic: str, channel: str) -> bool:
        """Delete a channel with its messages. False: no such channel."""
    def empty_channel(self, topic: str, channel: str) -> bool:
        """Delete the messages of a channel. False: no such channel."""
    def pause_channel(self, topic: str, channel: str, paused: bool) -> bool:
        """Pause or resume a channel. False: no such channel."""
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
        """Create (full or empty) or change the bucket of a topic; create the topic if it does not exist.

        From ``expires_ns`` (CLOCK_BOOTTIME) on the bucket releases nothing; None: it never expires. False: ``version``
        is older than the one in force.
        """
    def keep_bucket(
        self, topic: str, rate_micro: int, burst_micro: int, reject: bool, max_backlog: int, max_backlog_bytes: int
    ) -> bool:
        """Limit a topic that need not exist: it has this bucket, empty at first, from its first message on."""
    def renew_leases(self, renewals: Sequence[tuple[str, int, int]]) -> None:
        """Renew leases: (topic, version, new ``expires_ns``), for shares in force under that version.

        An expired share starts again with an empty bucket.
        """
    def clear_bucket(self, topic: str) -> bool:
        """Remove a topic's limit and release all waiting messages at once. False: it had no limit."""
    def set_publishers(self, topic: str, publishers: Sequence[str], version: int) -> None:
        """Set the ids assigned to this broker. Others are unassigned (event ``stranger``, counter ``undeclared``)."""
    def set_mqtt_names(self, topic: str, filters: Sequence[str], v3_excess: str) -> None:
        """Set which MQTT names belong to a topic besides its own, instead of those that it had.

        ``v3_excess`` ("delay", "close", "drop"): what becomes of a publish of 3.1.1 above the limit. Raises ValueError.
        """
    def set_mqtt_name(self, topic: str, said: str) -> None:
        """Set the MQTT name of messages that come by NSQ, until ``set_mqtt_names``. Raises ValueError if no filter of
        the topic matches it."""
    def set_mqtt_groups(self, topic: str, groups: Sequence[str]) -> None:
        """Set which shared subscriptions (``$share/GROUP/FILTER``) the topic's file declares, instead of those that it
        did: they collect without members too, on disk. Others end with their last member. Raises ValueError."""
    def forget_left_mqtt_groups(self) -> None:
        """Remove what earlier incarnations kept for shared subscriptions that nobody has declared since the start."""
    def set_contracts(self, contracts: Sequence[tuple[bytes, bool]], rejoins: bool) -> list[str | None]:
        """Put contracts in force, in the place of those of their patterns: JSON, as ``Limiter`` takes it, and whether
        ``take_taken`` tells what is taken. Return for each why it is refused. Subjects keep what they have used.

        ``rejoins``: other brokers may have held replicated ones before. These refuse everybody until
        ``join_contracts``. New subjects of them then count as used up, for as long as it takes to drain.
        """
    def take_taken(self) -> list[tuple[str, str, int]]:
        """Return what was taken of replicated contracts since the last call: namespace, subject, cost."""
    def charge_contracts(self, taken: Sequence[tuple[str, str, int]], late: bool) -> None:
        """Take what clients took at another broker, however far below zero. ``late``: a burst of each at most."""
    def overdrawn(self) -> list[tuple[str, str, int]]:
        """Return the subjects that are below zero by what other brokers told, with namespace and tokens."""
    def join_contracts(self) -> None:
        """The other brokers were asked what is ``overdrawn``: charge that right after. Again, it does nothing."""
    def remove_contract(self, namespace: str, subject: str) -> bool:
        """Remove a contract and its subjects. False: there is none of this pattern."""
    def set_terms(self, topic: str, terms: bytes) -> None:
        """Set which contracts a topic's publishers are under: JSON of ``srtm.control.ContractTerms``.

        Raises ValueError.
        """
    def heaviest_subjects(self, namespace: str, most: int) -> bytes:
        """Return the most checked subjects of a namespace of contracts, heaviest first, as JSON
        (``srtm.control.ContractSubject``)."""
    def contracts(self) -> bytes:
        """Return what was asked of each contract as JSON (``broker.snapshot.Contract``)."""
    def share_mqtt_interest(self, is_shared: bool) -> None:
        """Set whether there are other brokers. If so, a new subscription is answered once they know of it."""
    def mqtt_interest(self) -> bytes:
        """Return what MQTT's subscribers want of other brokers, as JSON (``broker.links.interest.Interest``)."""
    def settle_mqtt_interest(self, version: int) -> None:
        """Say that all other brokers know this version of ``mqtt_interest``."""
    def allow_links(
        self,
        broker: str,
        channel: str,
        key: str,
        filters: Sequence[str] | None,
        groups: Sequence[str],
        kept: Sequence[str],
        durable: bool,
    ) -> None:
        """Let ``broker`` consume ``channel`` of any topic here if it shows ``key``.

        The channels take messages whose names one of ``filters`` matches; None: all. Of ``groups``
        (``$share/GROUP/FILTER``) each message goes to one member, here or there; of ``kept`` it goes there if no member
        is connected anywhere, and this broker does not keep the group itself. ``durable``: nothing that the channels
        take is acknowledged before it is on disk. Raises ValueError (no filter, no group, no channel name).
        """
    def mark_link(self, channel: str, mark: str) -> bool:
        """Send ``mark`` over the link of what is retained, behind all that is retained now (event ``link_marked``).

        False: ``srtm.retained`` has no such channel.
        """
    def forbid_links(self, broker: str) -> None:
        """End the links of ``broker``, and let it open none."""
    def open_link(
        self,
        number: int,
        fd: int,
        remote: str,
        broker: str,
        origin: str,
        key: str,
        topic: str,
        channel: str,
        ready: int,
    ) -> None:
        """Consume ``channel`` of ``topic`` over the connected socket ``fd``, which is the engine's from now on.

        What comes goes to MQTT's subscribers here. ``remote`` is HOST:PORT, ``broker`` this broker's name, ``origin``
        the other one's, ``ready`` how many messages may be unanswered. The event ``link_ended`` with ``number`` tells
        of its end.
        """
    def close_link(self, number: int) -> bool:
        """End a link that ``open_link`` began. False: it has ended."""
    def mqtt_sessions(self, most: int) -> bytes:
        """Return JSON: ``{"sessions": [...], "total": N}``, ``most`` of them at most, in no order."""
    def mqtt_session(self, client_id: str) -> bytes | None:
        """Return the session of a client as JSON, with its filters. None: it has none."""
    def kick_mqtt(self, client_id: str) -> bool:
        """End the session of a client, and its connection. False: it has none."""
    def hand_over_mqtt_sessions(self) -> int:
        """Offer the sessions that outlive their connections to other brokers. Returns how many are here still; 0 if
        there is no other broker."""
    def mqtt_retained(self, filter: str, most: int, clear: bool) -> bytes:
        """Return what is retained under a filter as JSON, at most about ``most``. ``clear``: remove it.

        Raises ValueError if it is no filter.
        """
    def move_publisher(
        self, topic: str, publisher_id: str, address: str, mqtt: tuple[str, str, str, str], version: int
    ) -> int:
        """Send ``_move_ ADDRESS VERSION`` to the aware connections of a publisher, and return their number."""
    def awaits_authorization(self, connection: int) -> bool:
        """Whether a connection still waits for ``set_authorization``."""
    def set_authorization(self, connection: int, answer: bytes | None) -> str | None:
        """Answer an ``AuthAsked`` with an auth server's JSON; None: no server answered.

        Returns why the JSON is invalid, or None.
        """
    def set_access(self, rules: bytes) -> None:
        """Have other users, tokens and rows count. ``rules``: ``broker.config.AccessRules`` as JSON.

        Rows and tokens count at once, passwords from the next client on. Raises ValueError.
        """
    def set_http_token(self, token: str) -> None:
        """Have /pub and /mpub ask for another token; "": for none."""
    def set_accepting(self, accepting: bool, reason: str) -> None:
        """Set whether publishes are accepted; else they are answered with E_PUB_FAILED and ``reason``.

        True also states that all limits are set. Then messages that waited for tokens when the process ended last are
        released, if their topics have no limit.
        """
    def accept_limited(self, reason: str) -> None:
        """Accept publishes to topics that have a limit. Others are answered with E_PUB_FAILED and ``reason``."""
    def trace(self, topic: str) -> tuple[list[str], bytes, bytes, bytes, bytes, bytes, bytes] | None:
        """Return the recorded messages: publisher names, then little-endian columns. None: no recording.

        The columns: index of the publisher (u32), arrival_ns, due_ns, released_ns, sent_ns (i64; 0: not yet),
        share_version (i64).
        """
    def histogram(self, topic: str, kind: str, window: str) -> bytes | None:
        """Return a histogram in ns as HDR V2 (deflate, base64).

        ``kind``: access, processing, consumer_wait or total. ``window``: since_start or last_60s.
        """

@final
class Measurement:
    """A measurement of the messages that arrive at a topic with a limit, from its creation on. Times are in ns.

    Latency is access + processing + network delay, without the wait for a subscriber. The network delay is half the
    smallest round-trip times of the publisher's and the subscribers' connections, by the kernel. Any thread may call
    it. Raises RuntimeError if the engine has stopped.
    """

    def __new__(cls, engine: Engine, topic: str, target_ns: int) -> Measurement:
        """Start to measure. A message above ``target_ns`` is late; intervals have that length, too.

        Raises ValueError if ``target_ns`` is not above 0 or the topic has no limit.
        """
    def advance(self) -> None:
        """Process the messages sent since the last call."""
    def intervals(self, end: bool) -> tuple[list[int], list[int], list[int], list[int]]:
        """Return the complete intervals since the last call: numbers, messages, late messages, sums of latency.

        An interval is complete once all its messages are sent. Empty intervals are left out; the first has the number
        0. ``end``: count the present interval as complete.
        """
    def percentiles(self, percentile: float) -> tuple[int, int, int, int]:
        """Return the number of messages since the start, and a percentile of access delay, processing and latency."""
    def recent(self, percentile: float) -> tuple[int, int, int]:
        """Return messages since the last call, the late ones among them, and a percentile of their latency."""
    def gaps(self) -> tuple[int, int]:
        """Return messages that the trace dropped before they were sent, and messages not taken 2 s after release."""
    def recording(self) -> tuple[list[str], list[int], int, list[int], list[int], list[int]]:
        """Return the measured messages that are still in the trace, in order of decision.

        Publishers; then columns: index of the publisher; arrival of the first message (wall clock); differences
        between arrivals; due minus arrival; sent minus due, without the wait for a subscriber.
        """

@final
class Flood:
    """A closed-loop load generator with its own thread. It measures how much a broker carries."""

    def __new__(cls, plan: bytes) -> Flood:
        """Read a plan: JSON with the fields of ``bench.harness.load.flood.FloodPlan``, no others (ValueError)."""
    def start(self) -> None:
        """Start the thread."""
    def wait(self, timeout_ms: int) -> bool:
        """Wait for the end, and return whether it came. Releases the GIL."""
    def stop(self) -> None:
        """End early, as a failure. After the end: close the connections that were kept."""
    def result(self) -> bytes:
        """Return the result as JSON. Raises RuntimeError before the end, OSError for a failure of the network."""

_Clocks = tuple[int, int]  # monotonic and wall clock, ns
_Verdict = tuple[
    bool, int, list[tuple[bool, int, int | None, int | None]], int | None, bytes | None, bool, bool
]  # allowed, contract, policies (allowed, remaining, wait, reset, ns), wait ns, grant, shared, shadowed; None: never

_HttpHeaders = list[tuple[bytes, bytes]]
_HttpWaits = Literal["bytes", "body", "room", "admission", "answer", "server", "end"]

@final
class HttpSession:
    """One connection of HTTP/1.1, sans-IO. It answers checks that a limiter decides, and says who is needed for others.

    ``bytes`` and ``body`` wait for what the client sends, ``room`` for another ``feed`` once the answers are sent,
    ``admission`` for ``admit``, ``answer`` for ``answer``, ``server`` for another server that begins with ``rest``. At
    ``end`` the connection ends after the answers.
    """

    def __new__(cls, key: bytes, needs_token: bool, headers: Sequence[str], most_body: int) -> HttpSession:
        """``key``: 16 secret bytes, of ids of requests. ``headers``: families of answers to gateways.

        ``most_body``: larger bodies, bytes, are for another server.
        """
    def feed(self, received: bytes, limiter: Limiter | None, clocks: _Clocks) -> tuple[bytes, _HttpWaits]:
        """Take what was received. Return answers, and what is waited for. ``limiter``: None: others decide."""
    @property
    def authorization(self) -> str | None:
        """The header that waits for ``admit``."""
    def admit(self, is_admitted: bool) -> None:
        """Say whether it may check, until more is received. Go on with ``feed``."""
    @property
    def asked(self) -> tuple[str, bytes, _HttpHeaders, bytes] | None:
        """The request that waits for ``answer``: method, target, headers, body."""
    def answer(self, status: int, headers: _HttpHeaders, body: bytes, clocks: _Clocks) -> tuple[bytes, _HttpWaits]:
        """Return the bytes of an answer, and what is waited for. Go on with ``feed``."""
    @property
    def rest(self) -> bytes:
        """What was received and is no request of here."""

@final
class LevelTable:
    """Levels of many subjects: units that are taken of a bucket and have not drained yet, by subject and policy.

    A key is a subject of 16 bytes and the number of its policy. Units are exact up to 2^127; larger ones count as that.
    An instant before that of a level counts as that. Raises ValueError for another subject, IndexError for another
    policy.
    """

    def __new__(cls, rates: Sequence[int]) -> LevelTable:
        """``rates``: units/ns, one for each policy."""
    def __len__(self) -> int: ...
    def __contains__(self, key: tuple[bytes, int], /) -> bool: ...
    def level(self, key: tuple[bytes, int], at_ns: int) -> int | None:
        """Return the units at ``at_ns``. None: it is not there."""
    def put(self, key: tuple[bytes, int], units: int, at_ns: int) -> None:
        """Set the level at ``at_ns``, of a new subject too."""
    def add(self, key: tuple[bytes, int], units: int, at_ns: int) -> int | None:
        """Add ``units``; below 0 take away, down to a level of 0. Return the level. None: it is not there."""
    def add_to_all(self, units: Sequence[int], at_ns: int) -> None:
        """Add ``units``, one for each policy."""
    def raise_all(self, units: Sequence[int], at_ns: int) -> None:
        """Raise each level that is lower to ``units``, one for each policy."""
    def change(self, rates: Sequence[int], at_ns: int) -> None:
        """Let levels drain at these rates from ``at_ns`` on."""
    def levels(self, at_ns: int) -> list[tuple[tuple[bytes, int], int]]:
        """Return all keys and their levels at ``at_ns``."""
    def forget(self, policies: Sequence[int], kept: set[tuple[bytes, int]], at_ns: int) -> int:
        """Drop what has drained, of these policies, but for the ``kept``. Return how many."""
    def bytes(self) -> int:
        """Return the memory that the table takes, used or not."""

@final
class SliceTable:
    """Windows of many subjects: tokens by the number of a slice. A slice counts up to 2^32 - 1 of them.

    ``now``: the number of the current slice. What counts is in the window, or up to one window ahead; what is further
    ahead counts in ``now``. Raises ValueError for no slices, and for a subject that has not 16 bytes.
    """

    def __new__(cls, slices: int, weighted: bool) -> SliceTable:
        """``slices`` of a window; ``weighted``: one more counts, in part."""
    def __len__(self) -> int: ...
    def __contains__(self, subject: bytes, /) -> bool: ...
    def counts(self, subject: bytes, now: int) -> dict[int, int] | None:
        """Return the tokens of all slices that have any. None: it is not there."""
    def put(self, subject: bytes, counts: Mapping[int, int], now: int) -> None:
        """Set what a subject has, of a new one too."""
    def add(self, subject: bytes, number: int, tokens: int, now: int) -> bool:
        """Add tokens in a slice; below 0 take away, at most what it has. False: the subject is not there."""
    def all(self, now: int) -> list[tuple[bytes, dict[int, int]]]:
        """Return all subjects and the tokens of their slices."""
    def forget(self, kept: set[bytes], now: int) -> int:
        """Drop the subjects that have nothing, but for the ``kept``. Return how many."""
    def bytes(self) -> int:
        """Return the memory that the table takes, used or not."""

@final
class Limiter:
    """Contracts, and the subjects under them (``srtm.limiting.limiter``). Every method may be called from any thread.

    Raises ValueError (a rule is broken) and LookupError (no contract is for the subject).
    """

    def __new__(cls, key: bytes, max_subjects: int, subjects_key: bytes | None = None) -> Limiter:
        """``key``: 16 bytes, of the hash of subjects and of grants. ``max_subjects``: of a namespace.

        ``subjects_key``: of the hash of subjects, where that is another one.
        """
    def keep(self, contract: int, policies: int) -> None:
        """Note from now on what subjects use of these policies of a contract. ``policies``: their bits."""
    def changed(self, most: int) -> list[tuple[int, bytes, bytes | None]]:
        """Return news: a contract's number, a subject's hash, what it has used; None: nothing. Each is given once."""
    def restore(self, contract: int, hash: bytes, words: bytes, saved: _Clocks, clocks: _Clocks) -> bool:
        """Give a subject what ``changed`` said at ``saved``. False: it is there, or the contract is another one."""
    def put_contract(self, contract: bytes, clocks: _Clocks) -> int:
        """Put a contract (JSON of ``limiting/core``) in force, and return its number."""
    def remove_contract(self, namespace: str, subject: str) -> bool:
        """Remove the contract of exactly this pattern. False: there is none."""
    def check(self, namespace: str, subject: str, cost: int, clocks: _Clocks) -> _Verdict:
        """Take ``cost`` from all policies, or from none."""
    def peek(self, namespace: str, subject: str, cost: int, clocks: _Clocks) -> _Verdict:
        """Return what ``check`` would say. Changes nothing."""
    def correct(self, grant: bytes, cost: int, clocks: _Clocks) -> None:
        """Replace the cost of a check by what it came to. Once, within 60 s."""
    def release(self, grant: bytes, clocks: _Clocks) -> None:
        """End an open request of policies of kind ``concurrency``. Once."""
    def charge(self, namespace: str, subject: str, cost: int, clocks: _Clocks) -> None:
        """Charge a subject without a check; below 0: give back."""
    def reset(self, namespace: str, subject: str) -> bool:
        """Make a subject a new one. False: it was."""
    def sweep(self, slots: int, clocks: _Clocks) -> None:
        """Look at the next ``slots`` slots, and forget subjects that have nothing used."""
    def counts(self, contract: int) -> list[tuple[int, int, int]] | None:
        """Return the (allowed, refused, cost) of a contract's policies, by its number. None: there is none."""
    def heaviest(self, namespace: str, most: int) -> list[tuple[str, int, int]]:
        """Return the most checked subjects: (subject, checks, at most so many too many), heaviest first."""
    def subjects(self) -> list[tuple[str, int]]:
        """Return the number of subjects in memory by namespace."""
    def bytes(self) -> int:
        """Return the bytes of all slots, used or not."""

@final
class LoadGen:
    """A run of the open-loop load generator, with its own threads and its own NSQ codec."""

    def __new__(cls, plan: bytes) -> LoadGen:
        """Read a plan: JSON with the fields of ``bench.harness.load.workload.Plan``, no others (ValueError)."""
    def start(self) -> None:
        """Start the threads."""
    def progress(self) -> bytes:
        """Return phase, sent, received and lateness so far, as JSON."""
    def wait(self, timeout_ms: int) -> bool:
        """Wait for the end, and return whether it came. Releases the GIL."""
    def stop(self) -> None:
        """End early; the measurements so far are the result."""
    def result(self) -> bytes:
        """Return the result as JSON, with histograms as HDR V2 in base64. Raises RuntimeError before the end."""

@final
class Throttle:
    """Buckets whose parameters come with each request, by key."""

    def __new__(cls, key: bytes, max_keys: int) -> Throttle:
        """``key``: 16 bytes, of the hash. Keys beyond ``max_keys`` share 1,024 buckets."""
    def sweep(self, slots: int, at_ns: int) -> None:
        """Look at the next ``slots`` slots, and forget keys whose buckets are full."""
    def keys(self) -> int:
        """Return the number of keys in memory."""

@final
class RespSession:
    """One connection of the Redis protocol, sans-IO. It answers CL.THROTTLE."""

    def __new__(cls, needs_token: bool) -> RespSession:
        """``needs_token``: nothing is answered before ``authenticate``."""
    def feed(self, received: bytes, throttle: Throttle, at_ns: int) -> bytes:
        """Take what was received, and return the answers. Stops at AUTH, and at 256 KiB of answers."""
    def authenticate(self, is_known: bool) -> bytes:
        """Answer the AUTH that waits."""
    @property
    def token(self) -> str | None:
        """The token of an AUTH that waits."""
    @property
    def has_more(self) -> bool:
        """Whether a whole command waits: call ``feed`` with nothing."""
    @property
    def is_closed(self) -> bool:
        """Whether the connection ends after the answers."""

@final
class Station:
    """A simulated broker: the engine's bucket, full at 0 ns, and servers behind it (``bench.simulation.brokers``)."""

    NEVER_NS: int  # access delay of a message that never gets a token
    def __new__(
        cls, rate_micro: int, burst_micro: int, service_ns: Sequence[int], servers: int = 1, seed: int = 1
    ) -> Station:
        """Set up a broker. ``service_ns``: service times, all equally likely.

        Raises ValueError for no service time, one below 0, or no server.
        """
    def run(self, arrival_ns: Buffer) -> tuple[bytes, bytes]:
        """Return access delay and processing delay of each arrival, ns, as int64. Releases the GIL.

        The arrivals are int64 in order of time, also across calls.
        """
