"""One broker as a service: puts the parts together and hands the engine's events to them.

Start: lock the data directory, bind the engine's ports (``startup``), restore what the last incarnation had, serve
HTTP, then start discovery and sync. A publish that arrives before everything is restored is refused: it is neither lost
nor let through unlimited. When it is cancelled: HTTP finishes its requests, the list of topics is written, the engine
closes its connections, the lock is released.
"""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio

from broker import events, snapshot
from broker.access_files import AccessFiles
from broker.admin.context import AdminContext, tokens_of
from broker.admin.forwarded_requests import ForwardedRequests
from broker.admin.router import admin_handler
from broker.config import MQTT_ADDRESSES, BrokerConfig, EngineConfig
from broker.leases.contract_agent import ContractAgent
from broker.leases.contract_holder import ContractHolder
from broker.leases.gdrl_agent import GdrlAgent
from broker.leases.lease_holder import LeaseHolder
from broker.links.consuming_brokers import ConsumingBrokers
from broker.links.keeper import LinkKeeper
from broker.links.link_tls import LinkTls
from broker.member import Membership
from broker.nsqd import metadata
from broker.nsqd.authorization import Authorizer, auth_servers
from broker.nsqd.metadata_writer import TopicListWriter
from broker.nsqd.nsqlookupd import Identity, Nsqlookupds, Registration, registrations
from broker.runtime import tls_files as tls
from broker.runtime.acceptance import Acceptance
from broker.runtime.addresses import BoundAddresses, Ports, bound_addresses, broadcast_address
from broker.runtime.claims import claims_of
from broker.runtime.data_directory import locked
from broker.runtime.health import Health
from broker.runtime.machine import Processors, machine_here
from broker.startup import engine_settings, make_engine, start_engine, stop_engine
from broker.stats.mqtt_channels import with_mqtt_channels
from broker.stats.statsd import Lines, key_prefix, push
from broker.sync.channel_discovery import ChannelDiscovery
from broker.sync.drain import Drain
from broker.sync.loop import LocalBroker
from broker.sync.remaining_messages import topics_left
from broker.sync.state_file import SyncState, load_state
from srtm.control import MqttPorts, SyncRequest
from srtm.errors import InternalError
from srtm.log import Log, LogSettings
from srtm.net.address import format_address, is_loopback
from srtm.net.http_client import HttpClient
from srtm.net.renewals import Renewals
from srtm.net.tls_trust import renew_trust
from srtm.net.tokens import FromFile
from srtm.version import __version__

if TYPE_CHECKING:
    from srtm._native import Engine

_LOST_LINKS_PERIOD_S = 60.0  # what it looks for is days old


async def serve(
    config: BrokerConfig,
    renewals: Renewals | None = None,
    *,
    task_status: trio.TaskStatus[BoundAddresses] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a broker until it is cancelled or drained. It has started when both ports answer.

    ``renewals`` gets the files that may change.

    Raises BadInput (a bad address, no such data path), Conflict (port or data path in use), InternalError (the engine
    failed).
    """
    log = log_of(config)
    directory = Path(config.data_path)
    with ExitStack() as stack:
        incarnation = stack.enter_context(locked(directory))
        saved = metadata.load(directory)
        state = load_state(directory)
        access = AccessFiles(config)
        settings = access.with_rules(tls.with_files(engine_settings(config, state), config))
        engine = make_engine(settings, config)
        if config.tls_cert:
            log.info("TLS is offered", oldest=tls.oldest_version(settings))
        stack.push(partial(stop_engine, engine, log))
        ports = start_engine(engine, settings)
        broker = Broker(config, settings, engine, incarnation, ports, log)
        broker.restore(saved, state)
        if renewals is not None:
            broker.add_renewals(renewals)
            access.add_renewals(renewals, engine)
        await broker.run(task_status)


def log_of(config: BrokerConfig) -> Log:
    return Log(config.log_name.strip() or config.name, settings=LogSettings(config.log_level, config.log_format))


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
        self._tokens = tokens_of(config)
        self._start_wall_ns = time.time_ns()
        self._hostname = socket.gethostname()
        self._broadcast_address = broadcast_address(config, self._hostname)
        self._health = Health(engine)
        self._acceptance = Acceptance(engine, self._health)
        self._topic_list_writer = TopicListWriter(engine, Path(config.data_path), settings.version, self._health, log)
        self._authorizer = Authorizer(engine, auth_servers(config), log)
        self._holder = LeaseHolder(engine, self._topic_list_writer.buckets.forget, speaks_mqtt=self._speaks_mqtt)
        self._contracts = ContractHolder(config.name, engine, log)
        self._link_tls = LinkTls(config.ca_file, config.tls_cert, config.tls_key)
        self._lookups = self._make_lookups()
        self._channel_discovery = ChannelDiscovery(config, engine, self._lookups, self._holder.is_managed, log)
        self._processors = Processors()
        self._drain = Drain(config.name, engine, log, self._has_given_up_tokens)
        dice = random.Random(f"{config.name} {incarnation}")
        self._agent = GdrlAgent(config.name, engine, self._holder, self._connect_partner, dice, log)
        self._consuming = self._make_consuming()
        self._keeper = self._make_keeper()
        self._contract_agent = ContractAgent(config.name, incarnation, engine, self._contracts, self._connect_partner)
        self._requests = ForwardedRequests(engine, admin_handler(self._admin_context()), log)
        self._membership = self._make_membership()
        self._synchronizer = None if self._membership is None else self._membership.synchronizer

    def restore(self, saved: metadata.Metadata, state: SyncState) -> None:
        """Restore what the last incarnation had: limits first, then topics and channels. What was limited is taken
        then, and waits; other topics may be limited by now, so they are refused until the first sync."""
        if self._config.distributors:
            self._contracts.hold(state.contracts)
            self._holder.hold(state.topics, state.version)
        self._engine.forget_left_mqtt_groups()  # all that topic files declare is known
        self._topic_list_writer.buckets.restore(saved.buckets or {}, self._holder.is_managed)
        if self._synchronizer is not None:
            self._synchronizer.remember(state)
        for name in metadata.restore(self._engine, saved):
            self._log.warning("the list of topics on disk has an invalid name", name=name)
        self._channel_discovery.skip(topic.name for topic in saved.topics or [])
        if not self._config.distributors or (state.has_synced and self._config.accept_unknown):
            self._acceptance.take_all()
        elif state.has_synced:
            self._acceptance.take_limited(self._settings.not_accepting_reason)
        else:
            self._acceptance.refuse(self._settings.not_accepting_reason)

    async def run(self, task_status: trio.TaskStatus[BoundAddresses]) -> None:
        try:
            await self._run_tasks(bound_addresses(self._settings, self._ports), task_status)
        finally:
            self._topic_list_writer.save_at_end()

    async def _run_tasks(self, bound: BoundAddresses, task_status: trio.TaskStatus[BoundAddresses]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._requests.serve)
            nursery.start_soon(self._follow_events, nursery)
            nursery.start_soon(self._topic_list_writer.keep)
            nursery.start_soon(self._lookups.run)
            nursery.start_soon(self._drop_lost_links)
            if self._config.statsd.address:
                nursery.start_soon(push, self._config.statsd, self._statsd_lines(), self._shown_snapshot, self._log)
            nursery.start_soon(self._drain_to_the_end, nursery.cancel_scope)
            if self._membership is not None:
                self._membership.start(nursery)
            served = {name: address for name, address in bound._asdict().items() if address}
            self._log.info("listening", **served, version=__version__, data=self._config.data_path)
            self._warn_if_open(bound.http)
            self._tell_of_access()
            task_status.started(bound)

    def add_renewals(self, renewals: Renewals) -> None:
        """Add the files that this broker can read again."""
        if isinstance(self._config.token, FromFile):
            renewals.add("token", partial(self._renew_token, self._config.token))
        if self._config.tokens is not None and self._config.tokens.is_of_file:
            renewals.add("tokens", self._config.tokens.renew)
        if self._config.tls_cert:
            renewals.add("certificate", partial(tls.renew, self._engine, self._config))
        if self._config.ca_file is not None:
            renewals.add("trusted certificates", partial(self._renew_trust, self._config.ca_file))

    def _renew_trust(self, ca_file: str) -> None:
        renew_trust(ca_file)
        self._link_tls.renew()

    def _renew_token(self, token: FromFile[str]) -> None:
        token.renew()
        self._engine.set_http_token(token.now)

    def _warn_if_open(self, http_address: str) -> None:
        """As nsqd's, the HTTP port takes orders from whoever reaches it, unless a token is asked for."""
        if http_address and not is_loopback(http_address) and self._tokens is None:
            self._log.warning(
                "whoever reaches the HTTP port may delete topics and change settings: use tokens or loopback",
                address=http_address,
            )

    def _tell_of_access(self) -> None:
        """Files named after MQTT hold all clients: whoever expects otherwise is to see why they are refused."""
        if self._config.mqtt_password_file or self._config.mqtt_acl_file:
            nameless = "by their rows" if self._settings.anonymous else "refused"
            self._log.info("clients of NSQ and HTTP are judged as those of MQTT", who_shows_no_name=nameless)

    def _statsd_lines(self) -> Lines:
        http_port = self._config.broadcast_http_port or self._ports.http
        prefix = key_prefix(self._config.statsd.prefix, self._broadcast_address, http_port)
        return Lines(prefix, self._config.statsd, self._settings.e2e_percentiles)

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
            tokens=self._tokens,
            is_managed=self._holder.is_managed,
            buckets=self._topic_list_writer.buckets,
            note_change=self._note_change,
            write_topics=self._topic_list_writer.write,
            health=lambda: self._health.text,
            config=self._config,
            drain=self._drain,
            consuming=self._consuming,
            answer_gdrl=self._agent.answer,
            take_contract_news=self._contract_agent.take,
            gdrl_rounds=lambda: self._agent.rounds,
            gdrl_invalid_messages=lambda: self._agent.invalid_messages,
            throttling=self._processors.throttling,
            log=self._log,
            log_settings=self._log.settings,
            lookup_addresses=lambda: self._lookups.addresses,
            use_lookups=self._use_lookups,
        )

    def _make_lookups(self) -> Nsqlookupds:
        identity = Identity(
            broadcast_address=self._broadcast_address,
            hostname=self._hostname,
            http_port=self._config.broadcast_http_port or self._ports.http,
            tcp_port=self._config.broadcast_tcp_port or self._ports.tcp,
            version=self._settings.version,
            topology_region=self._settings.topology_region,
            topology_zone=self._settings.topology_zone,
        )
        return Nsqlookupds(self._config.lookupd_tcp_addresses, identity, self._registrations, self._log)

    def _registrations(self) -> set[Registration]:
        """While the broker drains, only topics that still have messages here: consumers may come for those."""
        now = self._snapshot()
        return registrations(now, topics_left(now) if self._drain.has_begun else None)

    def _snapshot(self) -> snapshot.Snapshot:
        return snapshot.take(self._engine)

    def _shown_snapshot(self) -> snapshot.Snapshot:
        return with_mqtt_channels(self._snapshot())

    def _use_lookups(self, addresses: Sequence[str]) -> None:
        """Raises BadInput."""
        self._lookups.use(addresses)
        self._engine.set_hold_new_topics(self._channel_discovery.is_needed)

    def _make_membership(self) -> Membership | None:
        if not self._config.distributors:
            return None
        about = SyncRequest(
            incarnation=self._incarnation,
            srtm_version=__version__,
            tcp_address=format_address(self._broadcast_address, self._ports.tcp),
            http_address=format_address(self._broadcast_address, self._ports.http),
            mcap=self._config.mcap,
            mqtt_address=self._told_address(self._ports.mqtt),
            mqtt_ports=MqttPorts(
                tls=self._told_address(self._ports.mqtts),
                ws=self._told_address(self._ports.mqtt_ws),
                wss=self._told_address(self._ports.mqtt_wss),
            ),
            lab_service_time_ns=self._settings.lab_service_time_ns,
            machine=machine_here(),
            claims=claims_of(Path(self._config.data_path), bound_addresses(self._settings, self._ports).tcp),
        )
        broker = LocalBroker(
            name=self._config.name,
            about=about,
            directory=Path(self._config.data_path),
            engine=self._engine,
            holder=self._holder,
            contracts=self._contracts,
            drain=self._drain,
            redirects_mqtt=self._config.mqtt_redirect != "never",
            throttling=self._processors.throttling,
            acceptance=self._acceptance,
            log=self._log,
            wants_addresses=self._keeper is not None,
            note_disowned=partial(self._health.note, "name"),
        )
        return Membership(self._config, broker, self._agent, self._contract_agent, self._consuming, self._keeper)

    def _told_address(self, port: int) -> str:
        """Where clients connect to a port; "": it is no TCP port."""
        return format_address(self._broadcast_address, port) if port > 0 else ""

    def _make_consuming(self) -> ConsumingBrokers:
        settings = self._settings
        return ConsumingBrokers(
            self._engine,
            self._holder.mqtt_filters,
            tcp_address=format_address(self._broadcast_address, self._ports.tcp),
            default_topic=settings.mqtt_topic,
            speaks_mqtt=self._speaks_mqtt,
            ready=settings.max_rdy_count,
            patience_s=settings.mqtt_max_session_expiry_s,
            tls=settings.tls_required != "false",
            note_started=self._note_started,
            note_left=self._note_left,
        )

    def _note_started(self, broker: str) -> None:
        if self._keeper is not None:
            self._keeper.note_started(broker)
        if self._synchronizer is not None:
            self._synchronizer.wake()  # where it is, if it was not one of the cluster for a while

    def _note_left(self, broker: str) -> None:
        if self._keeper is not None:
            self._keeper.note_left(broker)

    def _make_keeper(self) -> LinkKeeper | None:
        if not (self._config.distributors and self._speaks_mqtt):
            return None
        return LinkKeeper(self._config.name, self._engine, self._connect_partner, self._log, self._link_tls.context)

    @property
    def _speaks_mqtt(self) -> bool:
        return any(getattr(self._settings, name) for name in MQTT_ADDRESSES)

    async def _drop_lost_links(self) -> None:
        while True:
            await trio.sleep(_LOST_LINKS_PERIOD_S)
            for channel in self._consuming.drop_lost(trio.current_time()):
                self._log.warning("a broker has not consumed for so long that its link is dropped", channel=channel)

    def _connect_partner(self, address: str) -> HttpClient:
        """``address``: HOST:PORT, or https://HOST:PORT."""
        if address.startswith("https:"):
            return HttpClient(address, token=self._config.token, tls=self._link_tls.context())
        return HttpClient(f"http://{address}", token=self._config.token)

    async def _drain_to_the_end(self, everything: trio.CancelScope) -> None:
        await self._drain.run(self._note_drain)
        if self._keeper is not None and not self._drain.sessions_left:
            await self._keeper.leave()
        if self._synchronizer is not None:
            await self._synchronizer.leave()
        everything.cancel()

    def _note_drain(self) -> None:
        self._lookups.note_change()
        if self._synchronizer is not None:
            self._synchronizer.wake()

    def _has_given_up_tokens(self) -> bool:
        """Whether no share is left here, and the distributor knows it."""
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
                self._consuming.note_topic(topic)
                nursery.start_soon(self._channel_discovery.discover, topic)
                self._note_topic(topic)
            case events.TopicDeleted(topic):
                self._consuming.forget_topic(topic)
                self._channel_discovery.forget(topic)
                self._holder.renew(topic)
                self._note_topic(topic)
            case events.ChannelCreated(topic) | events.ChannelDeleted(topic):
                self._note_topic(topic)
            case events.UnassignedPublisherSeen(topic, publisher_id):
                if self._synchronizer is not None:
                    self._synchronizer.note_unassigned(topic, publisher_id)
            case events.RateChanged():
                if self._membership is not None:
                    self._membership.histories.note_rate_change(event)
            case events.Unsteady():
                if self._membership is not None:
                    self._membership.histories.note_unsteady(event)
            case events.Starved():
                if self._synchronizer is not None:
                    self._synchronizer.wake()
            case events.AuthAsked():
                nursery.start_soon(self._authorizer.answer, event)
            case events.DiskFailed(reason):
                self._health.note("queues", reason)
                self._log.failure("messages cannot be written", reason=reason)
            case events.DiskWorks():
                self._health.note("queues", None)
                self._log.info("messages can be written again")
            case events.MqttInterestChanged():
                if self._keeper is not None:
                    self._keeper.note_interest()
            case events.LinkMarked(number, mark):
                if self._keeper is not None:
                    self._keeper.note_mark(number, mark)
            case events.LinkEnded(number, reason):
                if self._keeper is not None:
                    self._keeper.note_link_ended(number, reason)
            case events.Failed(reason):
                raise InternalError(f"the engine cannot go on: {reason}")
            case _:
                _log_event(self._log, event)

    def _note_topic(self, topic: str) -> None:
        self._note_change()
        if self._synchronizer is not None:
            self._synchronizer.note_topic(topic)

    def _note_change(self) -> None:
        self._topic_list_writer.note_change()
        self._lookups.note_change()


def _log_event(log: Log, event: events.Event) -> None:
    """Tell people of what nothing here has to follow."""
    match event:
        case events.LeaseExpired(topic, waiting):
            log.warning("a lease ended without renewal: its topic waits here", topic=topic, waiting=waiting)
        case events.DiskRepaired(file, what):
            log.warning("a file of a queue was damaged", file=file, done=what)
        case events.AcceptFailed(reason):
            log.failure("no room for more connections: those that come now wait", reason=reason)
        case events.LimitReached(limit, client, times):
            log.warning(event.in_words(), limit=limit, first=client, times=times)
        case events.Denied(action, client, name, times):
            log.warning("a client is denied", action=action, client=client, name=name, times=times)
        case events.MqttExcess():
            log.warning("messages of an MQTT publisher are not taken", **msgspec.structs.asdict(event))
        case events.MqttUnkept():
            log.warning("messages for MQTT subscribers are not kept", **msgspec.structs.asdict(event))
        case events.SubscribedEarly(times):
            log.warning("clients were told that they are subscribed before all brokers know it", times=times)
        case events.ConnectedEarly(times):
            trouble = "clients go on without what other brokers may keep for them: it comes late"
            log.warning(trouble, times=times)
