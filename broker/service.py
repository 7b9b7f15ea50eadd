"""One broker as a service: the engine, and around it the tasks that tell it what to do. The only file of the broker
that opens a nursery for good.

Start: lock the data directory; bind the engine's ports; put back what the last incarnation had; serve HTTP; then
discovery and sync. A publish that comes before everything is back is refused, not lost and not let through unlimited.
Stop, when cancelled: HTTP finishes what it is at, the list of topics is written, the engine closes its connections, the
lock is dropped.
"""

from __future__ import annotations

import errno
import random
import signal
import socket
import ssl
import time
import zlib
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import trio

from broker import events, metadata, snapshot, tls
from broker.admin import admin_handler
from broker.admin_context import AdminContext
from broker.auth import AuthServers, parse_auth_address
from broker.config import TOPOLOGY_AWARE, BrokerConfig, EngineConfig
from broker.data_path import locked
from broker.drain import Drain
from broker.gdrl_agent import GdrlAgent
from broker.lease_holder import LeaseHolder
from broker.left import topics_left
from broker.lookup import Identity, Lookups, Registration, known_channels, registrations
from broker.membership import Membership, connect_to
from broker.processors import Processors
from broker.requests import Requests
from broker.statsd import Lines, key_prefix, push
from broker.sync import Synchronizer, SyncState, load_state
from broker.wakeup import Wakeup
from srtm import __version__
from srtm.address import format_address, is_socket_path, listen_address, parse_address
from srtm.control import SyncRequest
from srtm.errors import BadInput, Conflict, InternalError, SrtmError, Unavailable
from srtm.http_client import HttpClient
from srtm.log import Log, Threshold
from srtm.tokens import Tokens

if TYPE_CHECKING:
    from srtm._native import Engine

CHANNEL_QUERY_TIMEOUT_S = 1.0  # nsqd's own bound: a new topic is held no longer than this
_ENGINE_STOP_TIMEOUT_MS = 60_000  # it writes what is queued, a gigabyte perhaps
_STORAGE_RETRY_S = 1.0
# New topics that are asked about at the same time: a thousand at once must not take a thousand sockets.
_QUERIES_AT_ONCE = 16
_AUTHORIZATIONS_AT_ONCE = 64
# That wait for one of these: a storm of clients at a dead auth server must not take the memory of all.
_MOST_QUESTIONS = 4096


class BoundAddresses(NamedTuple):
    """What is listened on: HOST:PORT with the real ports, the path of a Unix socket, or "" where it is off."""

    tcp: str
    http: str
    https: str


async def serve(
    config: BrokerConfig, *, task_status: trio.TaskStatus[BoundAddresses] = trio.TASK_STATUS_IGNORED
) -> None:
    """Run a broker until cancelled, or drained. Started when both ports answer.

    Raises BadInput (an address that is none, no such data path), Conflict (port or data path in use), InternalError
    (the engine failed).
    """
    log = log_of(config)
    directory = Path(config.data_path)
    with ExitStack() as stack:
        incarnation = stack.enter_context(locked(directory))
        saved = metadata.load(directory)
        state = load_state(directory)
        settings = tls.with_files(engine_settings(config, state), config)
        engine = make_engine(settings, config)
        if config.tls_cert:
            log.info("TLS is offered", oldest=tls.oldest_version(settings))
        stack.push(partial(stop_engine, engine, log))
        ports = start_engine(engine, settings)
        broker = Broker(config, settings, engine, incarnation, ports, log)
        broker.restore(saved, state)
        await broker.run(task_status)


def engine_settings(config: BrokerConfig, state: SyncState) -> EngineConfig:
    """Closed to publishes until everything is in place: ``Broker.restore`` or the first sync opens it."""
    return msgspec.structs.replace(
        config.engine,
        tcp_address=listen_address("tcp_address", config.tcp_address),
        http_address=optional_address("http_address", config.http_address),
        https_address=optional_address("https_address", config.https_address if config.tls_cert else ""),
        http_idle_timeout_ms=config.http_idle_timeout_ms,
        http_token=config.token or "",
        node_id=zlib.crc32(config.name.encode()) % 1024 if config.node_id is None else config.node_id,
        max_memory_bytes=config.max_memory_bytes,
        data_path=config.data_path,
        trace_entries=config.trace_entries,
        hold_new_topics=config.needs_discovery,
        topology_aware=TOPOLOGY_AWARE in config.experiments,
        auth_required=bool(config.auth_http_addresses),
        accepting=False,
        not_accepting_reason=refusal(config, state),
    )


def tokens_of(config: BrokerConfig) -> Tokens | None:
    """Who may use the HTTP here. None: everybody."""
    own = None if config.token is None else Tokens.of_one(config.token)
    if own is None or config.tokens is None:
        return own or config.tokens
    return config.tokens.joined(own)  # which the list may name too, as that of a broker


def optional_address(field: str, address: str) -> str:
    return address and listen_address(field, address)


def log_of(config: BrokerConfig) -> Log:
    return Log(config.log_name or config.name, threshold=Threshold(config.log_level))


def refusal(config: BrokerConfig, state: SyncState) -> str:
    if config.distributors and not state.has_synced:
        return f"broker {config.name} has not synced with the distributor yet"
    return f"broker {config.name} is starting"


def make_engine(settings: EngineConfig, config: BrokerConfig) -> Engine:
    """Raises BadInput."""
    from srtm._native import Engine

    try:
        return Engine(msgspec.json.encode(settings))
    except ValueError as error:
        raise tls.refusal(error, settings, config) from None


def stop_engine(engine: Engine, log: Log, _kind: object, error: BaseException | None, _traceback: object) -> None:
    """Saves what is queued, whatever ends the broker. Raises InternalError where not all could be, unless ``error``
    says already why the broker ends."""
    saved = engine.stop(_ENGINE_STOP_TIMEOUT_MS)
    failures = [event.reason for event in events.drain(engine) if isinstance(event, events.DiskFailed)]
    if saved:
        return
    reason = failures[-1] if failures else f"the engine did not end within {_ENGINE_STOP_TIMEOUT_MS} ms"
    log.failure("queued messages were not all saved", reason=reason)
    group = error if isinstance(error, BaseExceptionGroup) else BaseExceptionGroup("", [error] if error else [])
    if error is None or group.subgroup(SrtmError) is None:
        raise InternalError(f"queued messages were not all saved: {reason}")


class Ports(NamedTuple):
    """-1: a Unix socket, or off (as nsqd shows it)."""

    tcp: int
    http: int
    https: int


def start_engine(engine: Engine, settings: EngineConfig) -> Ports:
    """Raises BadInput, Conflict."""
    try:
        ports = engine.start()
    except ValueError as error:
        field, _, rule = str(error).partition(": ")
        raise BadInput(field, getattr(settings, field), rule) from None
    except OSError as error:
        field = error.filename or "tcp_address"
        if field == "data_path":
            raise BadInput(field, settings.data_path, f"must take queues ({error.strerror})") from None
        raise bind_error(field, getattr(settings, field), error) from None
    return Ports(*(-1 if port is None else port for port in ports))


def bind_error(field: str, address: str, error: OSError) -> SrtmError:
    if error.errno == errno.EADDRINUSE:
        return Conflict(field, address, "the port is in use by another process")
    if error.errno == errno.EACCES:
        return Conflict(field, address, "this user may not listen on that port")
    return BadInput(field, address, f"must be an address of this host ({error.strerror or error})")


class Broker:
    """The parts of one running broker and the tasks between them."""

    def __init__(
        self, config: BrokerConfig, settings: EngineConfig, engine: Engine, incarnation: str, ports: Ports, log: Log
    ) -> None:
        self._config = config
        self._settings = settings
        self._engine = engine
        self._incarnation = incarnation
        self._ports = ports
        self._log = log
        self._directory = Path(config.data_path)
        self._start_wall_ns = time.time_ns()
        self._hostname = socket.gethostname()
        self._broadcast_address = broadcast_address(config, self._hostname)
        self._health = "OK"
        self._failures: dict[str, str] = {}  # {what cannot be written: why}
        self._metadata_changed = Wakeup()
        self._restored: set[str] = set()  # topics whose channels are known although an event will call them new
        self._queries = trio.CapacityLimiter(_QUERIES_AT_ONCE)
        self._auth_servers = auth_servers(config)
        self._authorizations = trio.CapacityLimiter(_AUTHORIZATIONS_AT_ONCE)
        self._holder = LeaseHolder(engine)
        self._lookups = self._make_lookups()
        self._processors = Processors()
        self._drain = Drain(config.name, engine, log, self._has_given_up_tokens)
        dice = random.Random(f"{config.name} {incarnation}")
        self._agent = GdrlAgent(config.name, engine, self._holder, self._connect_partner, dice, log)
        self._requests = Requests(engine, admin_handler(self._admin_context()), log)
        self._membership: Membership | None = None
        self._synchronizer: Synchronizer | None = None

    def restore(self, saved: metadata.Metadata, state: SyncState) -> None:
        """Limits first, then topics and channels; then the port may let messages in, if this broker may know what is
        limited."""
        if self._config.distributors:
            self._holder.hold(state.topics)
        for name in metadata.restore(self._engine, saved):
            self._log.warning("a topic or channel in the list on disk has a name that is none", name=name)
        self._restored = {topic.name for topic in saved.topics or []}
        if not self._config.distributors or state.has_synced:
            self._engine.set_accepting(True, "")

    async def run(self, task_status: trio.TaskStatus[BoundAddresses]) -> None:
        prefix = key_prefix(self._config.statsd.prefix, self._broadcast_address, self._ports.http)
        self._statsd = Lines(prefix, self._config.statsd, self._settings.e2e_percentiles)
        self._membership = self._make_membership()
        self._synchronizer = self._membership.synchronizer if self._membership is not None else None
        try:
            await self._run_tasks(self._bound(), task_status)
        finally:
            self._save_metadata_at_end()

    async def _run_tasks(self, bound: BoundAddresses, task_status: trio.TaskStatus[BoundAddresses]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._requests.serve)
            nursery.start_soon(self._follow_events, nursery)
            nursery.start_soon(self._keep_metadata)
            nursery.start_soon(self._lookups.run)
            if self._config.statsd.address:
                nursery.start_soon(push, self._config.statsd, self._statsd, self._snapshot, self._log)
            nursery.start_soon(self._drain_to_the_end, nursery.cancel_scope)
            if self._membership is not None:
                self._membership.start(nursery)
            served = {name: address for name, address in bound._asdict().items() if address}
            self._log.info("listening", **served, version=__version__, data=self._directory)
            task_status.started(bound)

    def _bound(self) -> BoundAddresses:
        return BoundAddresses(
            bound_address(self._settings.tcp_address, self._ports.tcp),
            bound_address(self._settings.http_address, self._ports.http),
            bound_address(self._settings.https_address, self._ports.https),
        )

    def _admin_context(self) -> AdminContext:
        return AdminContext(
            engine=self._engine,
            settings=self._settings,
            name=self._config.name,
            incarnation=self._incarnation,
            start_wall_ns=self._start_wall_ns,
            hostname=self._hostname,
            broadcast_address=self._broadcast_address,
            tcp_port=self._ports.tcp,
            http_port=self._ports.http,
            tokens=tokens_of(self._config),
            is_managed=self._holder.is_managed,
            note_change=self._note_change,
            health=lambda: self._health,
            config=self._config,
            drain=self._drain,
            answer_gdrl=self._agent.answer,
            gdrl_rounds=lambda: self._agent.rounds,
            throttling=self._processors.throttling,
            threshold=self._log.threshold,
            lookup_addresses=lambda: self._lookups.addresses,
            use_lookups=self._use_lookups,
        )

    def _make_lookups(self) -> Lookups:
        identity = Identity(
            broadcast_address=self._broadcast_address,
            hostname=self._hostname,
            http_port=self._config.broadcast_http_port or self._ports.http,
            tcp_port=self._config.broadcast_tcp_port or self._ports.tcp,
            version=self._settings.version,
            topology_region=self._settings.topology_region,
            topology_zone=self._settings.topology_zone,
        )
        return Lookups(self._config.lookupd_tcp_addresses, identity, self._registrations, self._log)

    def _registrations(self) -> set[Registration]:
        """While it drains, only topics that still have messages here: consumers may come for those."""
        now = self._snapshot()
        return registrations(now, topics_left(now) if self._drain.has_begun else None)

    def _snapshot(self) -> snapshot.Snapshot:
        return snapshot.take(self._engine)

    def _use_lookups(self, addresses: Sequence[str]) -> None:
        """Raises BadInput."""
        self._lookups.use(addresses)
        self._engine.set_hold_new_topics(self._needs_discovery)

    @property
    def _needs_discovery(self) -> bool:
        """Someone else may know channels of a topic that is new here: hold it until they were asked."""
        return bool(self._config.distributors or self._lookups.addresses)

    def _make_membership(self) -> Membership | None:
        if not self._config.distributors:
            return None
        about = SyncRequest(
            incarnation=self._incarnation,
            srtm_version=__version__,
            tcp_address=format_address(self._broadcast_address, self._ports.tcp),
            http_address=format_address(self._broadcast_address, self._ports.http),
            mcap=self._config.mcap,
            lab_service_time_ns=self._settings.lab_service_time_ns,
        )
        throttling = self._processors.throttling
        return Membership(
            self._config, about, self._engine, self._holder, self._drain, self._agent, throttling, self._log
        )

    def _connect_partner(self, address: str) -> HttpClient:
        return HttpClient(f"http://{address}", token=self._config.token)

    async def _drain_to_the_end(self, everything: trio.CancelScope) -> None:
        await self._drain.run(self._note_drain)
        if self._synchronizer is not None:
            await self._synchronizer.leave()
        everything.cancel()

    def _note_drain(self) -> None:
        self._lookups.note_change()
        if self._synchronizer is not None:
            self._synchronizer.wake()

    def _has_given_up_tokens(self) -> bool:
        """And the distributor knows it."""
        return self._synchronizer is None or (self._holder.holds_nothing and self._synchronizer.is_settled)

    async def _follow_events(self, nursery: trio.Nursery) -> None:
        while True:
            await trio.lowlevel.wait_readable(self._engine.fileno())
            for event in events.drain(self._engine):
                self._handle_event(event, nursery)
            self._requests.arrived.set()

    def _handle_event(self, event: events.Event, nursery: trio.Nursery) -> None:
        match event:
            case events.TopicCreated(topic):
                nursery.start_soon(self._introduce_topic, topic)
                self._note_change()
            case events.TopicDeleted(topic):
                self._restored.discard(topic)
                self._holder.renew(topic)
                self._note_change()
            case events.ChannelCreated() | events.ChannelDeleted():
                self._note_change()
            case events.StrangerSeen(topic, publisher_id):
                if self._synchronizer is not None:
                    self._synchronizer.note_stranger(topic, publisher_id)
            case events.Starved():
                if self._synchronizer is not None:
                    self._synchronizer.wake()
            case events.Lapsed(topic, waiting):
                self._log.warning("a lease ended without renewal: its topic waits here", topic=topic, waiting=waiting)
            case events.AuthAsked():
                nursery.start_soon(self._authorize, event)
            case events.DiskFailed(reason):
                self._note_storage("queues", reason)
                self._log.failure("messages cannot be written", reason=reason)
            case events.DiskWorks():
                self._note_storage("queues", None)
                self._log.info("messages can be written again")
            case events.DiskRepaired(file, what):
                self._log.warning("a file of a queue was damaged", file=file, done=what)
            case events.AcceptFailed(reason):
                self._log.failure("no room for more connections: those that come now wait", reason=reason)
            case events.LimitReached(limit, client, times):
                self._log.warning("clients meet a limit", limit=limit, first=client, times=times)
            case events.Failed(reason):
                raise InternalError(f"the engine cannot go on: {reason}")

    async def _authorize(self, question: events.AuthAsked) -> None:
        """The connection waits meanwhile, nobody else does."""
        answer = None
        try:
            if self._authorizations.statistics().tasks_waiting >= _MOST_QUESTIONS:
                raise Unavailable(f"{_MOST_QUESTIONS} others wait already")
            async with self._authorizations:
                if not self._engine.awaits_authorization(question.connection):
                    return  # it did not wait for its turn
                answer = await self._auth_servers.ask(question)
        except SrtmError as error:
            self._log.warning("no authorization", client=question.remote_ip, reason=error)
        refused = self._engine.set_authorization(question.connection, answer)
        if refused is not None:
            self._log.warning("an authorization is refused", client=question.remote_ip, reason=refused)

    def _note_change(self) -> None:
        self._metadata_changed.set()
        self._lookups.note_change()

    async def _introduce_topic(self, topic: str) -> None:
        """A new topic gets the channels that it has elsewhere before any message moves; it waits for that, but not for
        long."""
        if self._needs_discovery and topic not in self._restored:
            with trio.move_on_after(CHANNEL_QUERY_TIMEOUT_S):
                async with self._queries:
                    await self._learn_channels(topic)
        self._restored.discard(topic)
        self._engine.release_topic(topic)

    async def _learn_channels(self, topic: str) -> None:
        known = [connect_to(self._config, url) for url in self._config.distributors]
        known += [HttpClient(url) for url in self._lookups.http_urls]
        create = partial(self._engine.create_channel, topic)
        await known_channels(topic, known, CHANNEL_QUERY_TIMEOUT_S, self._log, create)

    async def _keep_metadata(self) -> None:
        """The list of topics on disk, a moment after every change; a disk that refuses shows in /ping until it takes
        it."""
        while True:
            await self._metadata_changed.wait()
            try:
                await trio.to_thread.run_sync(metadata.save, self._directory, self._metadata())
            except OSError as error:
                self._note_storage("topics", str(error))
                self._log.failure("the list of topics was not written", reason=error)
                await trio.sleep(_STORAGE_RETRY_S)
                self._metadata_changed.set()
            else:
                self._note_storage("topics", None)

    def _note_storage(self, what: str, failure: str | None) -> None:
        """``what`` cannot be written (or can, again): shows in /ping as long as anything cannot."""
        self._failures.pop(what, None)
        if failure is not None:
            self._failures[what] = failure
        self._health = next((f"NOK - {text}" for text in self._failures.values()), "OK")
        self._engine.set_health(self._health)

    def _save_metadata_at_end(self) -> None:
        """What changed in the last moment may not have been written yet."""
        try:
            metadata.save(self._directory, self._metadata())
        except (OSError, RuntimeError) as error:  # the disk refuses, or the engine is what has failed
            self._log.failure("the list of topics was not written", reason=error)

    def _metadata(self) -> metadata.Metadata:
        return metadata.from_snapshot(snapshot.take(self._engine), self._settings.version)


def auth_servers(config: BrokerConfig) -> AuthServers:
    return AuthServers(
        [parse_auth_address("auth_http_address", address) for address in config.auth_http_addresses],
        config.auth_http_request_method,
        config.http_client_connect_timeout_ms / 1000,
        config.http_client_request_timeout_ms / 1000,
        partial(ssl.create_default_context, cafile=config.tls_root_ca_file or None),
    )


def broadcast_address(config: BrokerConfig, hostname: str) -> str:
    """The host that others are told to connect to."""
    if config.broadcast_address or is_socket_path(config.tcp_address):
        return config.broadcast_address or hostname
    host, _ = parse_address("tcp_address", config.tcp_address)
    return hostname if host in ("0.0.0.0", "::") else host


def bound_address(address: str, port: int) -> str:
    """With the real port, where there is one."""
    return address if port == -1 else format_address(parse_address("address", address)[0], port)


def run(config: BrokerConfig) -> int:
    """A broker as a process: until it is drained (0), SIGTERM (0) or SIGINT (130). Raises SrtmError where it cannot
    start or go on."""
    try:
        return trio.run(_serve_until_signal, config)
    except BaseExceptionGroup as group:
        refusals, bugs = group.split(SrtmError)
        if refusals is None or bugs is not None:
            raise
        raise first_leaf(refusals) from None


def first_leaf(error: BaseException) -> BaseException:
    """One failure ends a broker; what fails with it in the same moment says no more."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _serve_until_signal(config: BrokerConfig) -> int:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_serve_to_the_end, config, nursery.cancel_scope)
            async for number in signals:
                log_of(config).info("stopping", signal=signal.Signals(number).name)
                nursery.cancel_scope.cancel()
                return 0 if number == signal.SIGTERM else 128 + number
    return 0


async def _serve_to_the_end(config: BrokerConfig, waiting: trio.CancelScope) -> None:
    await serve(config)
    waiting.cancel()
