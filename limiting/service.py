"""The limit service: contracts, the limiter, and HTTP, the Redis protocol and gRPC around them.

When it is cancelled it takes no new requests and gives those under way a second to end. What subjects have used ends
with the process, but for policies with ``persist``.
"""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from functools import partial
from typing import NamedTuple

import trio

from limiting.api.app import make_app
from limiting.api.parts import Parts
from limiting.audit_log import AuditLog
from limiting.config import LimitConfig
from limiting.contract_store import ContractStore
from limiting.database import Database
from limiting.discovery import Discovery
from limiting.envoy.rate_limits import RateLimitRequest, RateLimitResponse
from limiting.envoy_checks import should_rate_limit
from limiting.grpc_server import GrpcServer
from limiting.http_server import HttpServer
from limiting.listeners import Door
from limiting.nodes.decisions import Decisions
from limiting.nodes.links import Links, nodes_of
from limiting.redis_server import RedisServer, too_many
from limiting.store.shared import SharedStore
from limiting.usage import Usage
from srtm.client.distributor import DistributorClient
from srtm.concurrency.background import background_nursery
from srtm.contracts.contract_file import read_contract_file
from srtm.contracts.subject_plans import Plans
from srtm.limiting.limiter import Limiter
from srtm.log import Log
from srtm.net.address import format_address
from srtm.net.renewals import Renewals
from srtm.web.serving import Certificate, add_renewals, bound, serve_app

_SWEEP_S = 0.25  # 4,096 slots each time: a million subjects in a minute and a half


class BoundAddresses(NamedTuple):
    """The addresses that are listened on, as HOST:PORT with the real port. None: switched off."""

    http: str
    resp: str | None
    grpc: str | None


async def serve(
    config: LimitConfig,
    renewals: Renewals | None = None,
    *,
    task_status: trio.TaskStatus[BoundAddresses] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a limit service until cancelled. It has started when HTTP answers. ``renewals`` gets what may change.

    Raises BadInput (a bad address, contract or file), Conflict (another service has the data), Unavailable (a port is
    in use).
    """
    certificate = Certificate(config.tls_cert, config.tls_key)
    certificate.check()
    if config.distributor:
        async with DistributorClient(config.distributor, token=config.token) as client:
            discovery = Discovery(config, client, Log("limit"))
            config = await discovery.found()
            await _serve_all(config, certificate, renewals, discovery, task_status)
    else:
        await _serve_all(config, certificate, renewals, None, task_status)


async def _serve_all(
    config: LimitConfig,
    certificate: Certificate,
    renewals: Renewals | None,
    discovery: Discovery | None,
    task_status: trio.TaskStatus[BoundAddresses],
) -> None:
    plans = Plans() if config.plans is None else Plans.of_file(config.plans)
    if renewals is not None:
        add_renewals(renewals, certificate, config.tokens)
        if config.plans is not None:
            renewals.add("plans", plans.renew)
    with _database(config) as database:
        limiter = Limiter(
            max_subjects=config.max_subjects, subjects_key=None if database is None else database.subjects_key()
        )
        async with _shared_store(config, limiter) as store:
            await _serve(config, certificate, limiter, store, database, plans, discovery, task_status)


@contextmanager
def _database(config: LimitConfig) -> Iterator[Database | None]:
    if config.data is None:
        yield None
        return
    with closing(Database(config.data)) as database:
        yield database


@asynccontextmanager
async def _shared_store(config: LimitConfig, limiter: Limiter) -> AsyncIterator[SharedStore | None]:
    if config.store is None:
        yield None
        return
    from limiting.store.redis import opened  # its library takes as long to load as half of the service

    async with opened(config.store) as store:
        shared = SharedStore(store, limiter)
        await shared.probe()
        yield shared


async def _serve(
    config: LimitConfig,
    certificate: Certificate,
    limiter: Limiter,
    store: SharedStore | None,
    database: Database | None,
    plans: Plans,
    discovery: Discovery | None,
    task_status: trio.TaskStatus[BoundAddresses],
) -> None:
    nodes = nodes_of(config)
    links = None if nodes is None else Links(nodes.members, config)
    decisions = Decisions(
        limiter,
        nodes,
        None if links is None else links.connect,
        store=store,
        mode=config.mode or "local",
        most_subjects=config.max_subjects,
        plans=plans,
    )
    contracts = ContractStore(decisions, database)
    usage = None if database is None else Usage(limiter, contracts, database, Log("limit"))
    if usage is not None:
        usage.restore()  # under the contracts of then: those of the file may change them
    if config.contracts is not None:
        contracts.put_all(read_contract_file(config.contracts))
    redis = RedisServer(config.max_subjects, config.tokens)
    with _saved_at_the_end(usage), bound(config.http_address) as listener:
        http = format_address(*listener.getsockname()[:2])
        async with background_nursery() as nursery:
            resp = await _listen_for_redis(nursery, config, certificate, redis)
            grpc = await _listen_for_envoy(nursery, config, certificate, decisions, contracts)
            if links is not None and decisions.mesh is not None:
                await nursery.start(links.serve, decisions.mesh)
            nursery.start_soon(decisions.run)
            if discovery is not None:
                nursery.start_soon(discovery.run, http, decisions.meet)
            if usage is not None:
                nursery.start_soon(usage.run)
            nursery.start_soon(_sweep, [limiter.sweep, redis.sweep])
            app = make_app(Parts(decisions, contracts, config, AuditLog(database)))
            _collect_seldom()
            ready = partial(_ready, BoundAddresses(http, resp, grpc), config, len(contracts.all()), task_status)
            front = HttpServer(app, decisions, config, Log("limit"))
            await serve_app(app, listener, certificate, Log("limit"), ready, front)


@contextmanager
def _saved_at_the_end(usage: Usage | None) -> Iterator[None]:
    try:
        yield
    finally:
        if usage is not None:
            usage.save()


def _ready(
    addresses: BoundAddresses, config: LimitConfig, contracts: int, task_status: trio.TaskStatus[BoundAddresses]
) -> None:
    facts = {
        "http" if config.tls_cert is None else "https": addresses.http,
        "resp": addresses.resp,
        "grpc": addresses.grpc,
    }
    given = {name: address for name, address in facts.items() if address is not None}
    Log("limit").info("ready", **given, contracts=contracts)
    task_status.started(addresses)


async def _listen_for_redis(
    nursery: trio.Nursery, config: LimitConfig, certificate: Certificate, redis: RedisServer
) -> str | None:
    """Returns the address, HOST:PORT; None: switched off."""
    if config.resp_address is None:
        return None
    door = Door("resp_address", config.most_connections, redis.serve, too_many, certificate.context())
    address: str = await nursery.start(door.listen, config.resp_address)
    return address


async def _listen_for_envoy(
    nursery: trio.Nursery,
    config: LimitConfig,
    certificate: Certificate,
    decisions: Decisions,
    contracts: ContractStore,
) -> str | None:
    """Returns the address, HOST:PORT; None: switched off."""
    if config.grpc_address is None:
        return None

    async def decide(request: RateLimitRequest) -> RateLimitResponse:
        return await should_rate_limit(decisions, contracts, request, config.headers)

    server = GrpcServer(decide, lambda: decisions.may_wait, config.tokens)
    door = Door("grpc_address", config.most_connections, server.serve, tls=certificate.context("h2"))
    address: str = await nursery.start(door.listen, config.grpc_address)
    return address


def _collect_seldom() -> None:
    """Decisions wait while Python looks for garbage in cycles, some 60 ms where it looks through everything.

    So it leaves out what is there now, and does that ten times as seldom. Contracts have no cycles: they go at once.
    """
    gc.collect()
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, 100)


async def _sweep(sweeps: list[Callable[[], None]]) -> None:
    while True:
        await trio.sleep(_SWEEP_S)
        for sweep in sweeps:
            sweep()
