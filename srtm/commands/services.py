"""``srtm broker``, ``nsqd``, ``distributor``, ``adaptor``, ``limit serve`` and ``up``: services, until a signal."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
import trio
import typer
from rich.console import Console

from srtm.client.distributor import distributor_urls
from srtm.cluster.cluster_file import ClusterFile, parse_ports
from srtm.cluster.ready_file import ReadyFile
from srtm.cluster.supervisor import Cluster, cluster
from srtm.commands.fitting import Fitting, ScalerKind
from srtm.console.options import TokenFileOption
from srtm.console.output import DistributorOption, JsonOption, TokenOption, show
from srtm.console.running import run_service
from srtm.log import Log
from srtm.net.failover import connected
from srtm.net.renewals import Renewals
from srtm.net.tls_trust import ca_file, renew_trust, trusting
from srtm.net.tokens import FromFile, OwnToken, Tokens, read_token, token_of_file

FittingOption = Annotated[
    Fitting, typer.Option(help="How topics are fitted to brokers by measurement; a submission may choose otherwise.")
]
ScalerOption = Annotated[
    ScalerKind, typer.Option(help="What starts more brokers when they run out: local processes, a command, nothing.")
]
ScalerCommandOption = Annotated[
    str,
    typer.Option(metavar="COMMAND", help="Shell command; $SRTM_BROKERS: how many more brokers are wanted."),
]
TokensOption = Annotated[
    str | None, typer.Option(metavar="FILE", help="Tokens and scopes, instead of --token: SCOPE NAME TOKEN a line.")
]
CertificateOption = Annotated[str | None, typer.Option(metavar="FILE", help="Certificate (PEM): serve HTTPS.")]
KeyOption = Annotated[str | None, typer.Option(metavar="FILE", help="Key of the certificate (PEM).")]


class Switch(Enum):
    """The values of an option that is on or off."""

    on = "on"
    off = "off"


def broker(context: typer.Context) -> int:
    """Run a broker. ``srtm.cli`` calls the broker's own parser directly, for a fast start; this is for the list."""
    from broker.__main__ import main

    return main(context.args)


def nsqd(context: typer.Context) -> int:
    """Run a broker with the flags of nsqd. As for ``broker``, ``srtm.cli`` does not come here."""
    from broker.nsqd_main import main

    return main(context.args)


def distributor(
    http_address: Annotated[str, typer.Option(metavar="HOST:PORT")] = "127.0.0.1:4190",
    store: Annotated[
        str,
        typer.Option(metavar="URL", help="sqlite:///PATH, or postgresql://... for a leader with standbys."),
    ] = "sqlite:///srtm.sqlite3",
    adopt_brokers: Annotated[
        bool,
        typer.Option("--adopt-brokers", help="Take brokers of another cluster, and so drop the limits that they keep."),
    ] = False,
    broadcast_address: Annotated[
        str | None, typer.Option(metavar="HOST", help="Host that others connect to while this distributor leads.")
    ] = None,
    fitting: FittingOption = Fitting.ON_BREACH,
    scaler: ScalerOption = ScalerKind.NONE,
    scaler_command: ScalerCommandOption = "",
    scaler_data: Annotated[
        Path, typer.Option(metavar="DIR", help="Data directory of the brokers that --scaler process starts.")
    ] = Path("scaled"),
    scaler_token_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="File with the token that those brokers use.")
    ] = None,
    scaler_ca_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="Certificates (PEM) that those brokers trust.")
    ] = None,
    relief: Annotated[
        Switch,
        typer.Option(help="Whether publishers of a topic move once its promise is broken. off: what would be is said."),
    ] = Switch.on,
    fitting_grace_s: Annotated[
        float,
        typer.Option(
            "--fitting-grace-s",
            "--relief-grace-s",
            metavar="S",
            help="Seconds that a promise must be broken before a layout is searched for.",
        ),
    ] = 15.0,
    fitting_moves: Annotated[
        int,
        typer.Option(
            "--fitting-moves",
            "--relief-moves",
            metavar="N",
            help="Publishers that move at once to brokers with other topics; at least a tenth of those that move.",
        ),
    ] = 200,
    fitting_cool_down_s: Annotated[
        float,
        typer.Option(
            "--fitting-cool-down-s",
            "--relief-cool-down-s",
            metavar="S",
            help="Seconds after a search before the next; twice as long after each that failed in a row.",
        ),
    ] = 300.0,
    metrics_topics: Annotated[
        int,
        typer.Option(metavar="N", help="Topics with series of their own in /metrics: broken promises, largest rates."),
    ] = 1_000,
    token: TokenOption = None,
    token_file: TokenFileOption = None,
    tokens: TokensOption = None,
    tls_cert: CertificateOption = None,
    tls_key: KeyOption = None,
) -> int:
    """Run the distributor, which places topics. It knows all brokers, assigns publishers and splits token buckets."""
    from distributor.config import DistributorConfig
    from distributor.fitting.events import Scaler
    from distributor.fitting.task import ROUNDS_S, parsed_options
    from distributor.service import serve

    own = _own_token(token, token_file)
    config = DistributorConfig(
        http_address=http_address,
        store=store,
        adopt_brokers=adopt_brokers,
        broadcast_address=broadcast_address,
        tokens=_tokens(own, tokens),
        tls_cert=tls_cert,
        tls_key=tls_key,
        fitting=parsed_options(fitting.value, ROUNDS_S).method,
        scaler=Scaler(scaler.value),
        scaler_command=scaler_command,
        scaler_data=scaler_data,
        scaler_options=_scaled(scaler_token_file, scaler_ca_file, tokens),
        relief=relief is Switch.on,
        fitting_grace_s=fitting_grace_s,
        fitting_moves=fitting_moves,
        fitting_cool_down_s=fitting_cool_down_s,
        metrics_topics=metrics_topics,
    )
    renewals = _renewals("distributor", own, tokens, tls_cert)
    return run_service(partial(serve, config, renewals), renewals)


def adaptor(
    distributor: DistributorOption = None, token: TokenOption = None, token_file: TokenFileOption = None
) -> int:
    """Run the split loop in a process of its own. While it runs, the distributor's own one stands back."""
    own = _own_token(token, token_file)
    return run_service(partial(_adapt, distributor, own), _renewals("adaptor", own, trusted=ca_file()))


def limit_serve(
    http_address: Annotated[str, typer.Option(metavar="HOST:PORT")] = "127.0.0.1:4196",
    resp_address: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Answer CL.THROTTLE here, in the Redis protocol.")
    ] = None,
    grpc_address: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Answer Envoy's rate limit service here, by gRPC.")
    ] = None,
    most_connections: Annotated[
        int,
        typer.Option(
            metavar="N", help="Connections at once in the Redis protocol, and as many by gRPC; 7/8 from one address."
        ),
    ] = 1_000,
    contracts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Contracts (TOML) that are put in force at the start.")
    ] = None,
    plans: Annotated[
        Path | None, typer.Option(metavar="FILE.csv", help="Plans of subjects: namespace,subject,plan a line.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Directory that keeps submitted contracts. Default: none.")
    ] = None,
    headers: Annotated[
        str, typer.Option(metavar="LIST", help="Headers of answers to gateways, of these three; or none.")
    ] = "ratelimit,x-ratelimit,retry-after",
    max_subjects: Annotated[int, typer.Option(metavar="N", help="Subjects of a namespace; more share.")] = 1_000_000,
    metrics_contracts: Annotated[
        int, typer.Option(metavar="N", help="Contracts with series of their own in /metrics, the busiest.")
    ] = 1_000,
    token: TokenOption = None,
    token_file: TokenFileOption = None,
    tokens: TokensOption = None,
    tls_cert: CertificateOption = None,
    tls_key: KeyOption = None,
    node: Annotated[str | None, typer.Option(metavar="NAME", help="This node's name in --peers.")] = None,
    peers: Annotated[
        str | None, typer.Option(metavar="NAME=HOST:PORT,...", help="All nodes that hold limits together.")
    ] = None,
    distributor: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="Nodes find each other here, instead of by --peers. May be repeated."),
    ] = None,
    nodes: Annotated[int, typer.Option(help="How many nodes there are at first, with --distributor.")] = 0,
    peers_address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Listen for peers here. Default: as in --peers; needed with --distributor."
        ),
    ] = None,
    peers_ca: Annotated[
        str | None, typer.Option(metavar="FILE", help="Links by TLS: who signed the nodes' certificates (PEM).")
    ] = None,
    cluster_key_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="The secret by which nodes prove themselves, the same at all.")
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option(
            metavar="MODE",
            help="How contracts that name no mode are held: local, replicated, exact, auto or store; or, for "
            "comparison only, counter or queue. Default: replicated with --peers.",
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="URL", envvar="SRTM_STORE", help="Redis or Valkey for mode store: redis://HOST:PORT, or rediss://."
        ),
    ] = None,
    new_cluster: Annotated[
        bool, typer.Option("--new-cluster", help="The first start of all nodes: nothing was taken before.")
    ] = False,
) -> int:
    """Run the limit service, which allows or refuses requests of any client by contracts."""
    from limiting.config import LimitConfig, header_families, mode_named
    from limiting.service import serve

    own = _own_token(token, token_file)
    config = LimitConfig(
        http_address=http_address,
        resp_address=resp_address,
        grpc_address=grpc_address,
        most_connections=most_connections,
        contracts=contracts,
        plans=plans,
        data=data,
        headers=header_families(headers),
        max_subjects=max_subjects,
        metrics_contracts=metrics_contracts,
        tokens=_tokens(own, tokens),
        token=own,
        tls_cert=tls_cert,
        tls_key=tls_key,
        node=node,
        peers=peers,
        distributor=tuple(distributor or ()),
        nodes=nodes,
        peers_address=peers_address,
        peers_ca=peers_ca,
        cluster_key_file=cluster_key_file,
        mode=None if mode is None else mode_named(mode),
        store=store,
        new_cluster=new_cluster,
    )
    trusted = ca_file() if distributor or store else None
    renewals = _renewals("limit", own, tokens, tls_cert, plans, trusted=trusted)
    return run_service(partial(serve, config, renewals), renewals)


async def _adapt(urls: list[str] | None, token: OwnToken | None) -> None:
    from adaptor.distributor_feed import DistributorFeed
    from adaptor.service import Adaptor

    log = Log("adaptor")
    asking = DistributorFeed(connected(distributor_urls(urls), log, token=token, ca_file=ca_file()))
    try:
        await Adaptor(asking, log).run()
    finally:
        await asking.aclose()


def _own_token(token: str | None, file: str | None) -> OwnToken | None:
    """Return the token of --token-file, else of --token or the environment. Raises BadInput."""
    return token or None if file is None else token_of_file("token_file", file)


def _renewals(service: str, token: OwnToken | None, *files: object, trusted: str | None = None) -> Renewals | None:
    """Return what the service reads again, with its own token and whom it trusts; None: nothing is in a file."""
    if not isinstance(token, FromFile) and not any(files) and trusted is None:
        return None
    renewals = Renewals(Log(service))
    if isinstance(token, FromFile):
        renewals.add("token", token.renew)
    if trusted is not None:
        renewals.add("trusted certificates", partial(renew_trust, trusted))
    return renewals


def _tokens(token: OwnToken | None, file: str | None) -> Tokens | None:
    """Return the tokens of the service: of a file, else one. Raises BadInput."""
    if file is not None:
        return Tokens.read("tokens", file)
    return None if token is None else Tokens.of_one(token)


def _scaled(token_file: str | None, ca_file: str | None, tokens: str | None) -> tuple[str, ...]:
    """Return the options of brokers that the distributor starts: their token, and the tokens that they require.

    Raises BadInput for files that those brokers could not read.
    """
    if token_file is not None:
        read_token("scaler_token_file", token_file)
    if ca_file is not None:
        trusting(ca_file)
    given = {"--token-file": token_file, "--ca-file": ca_file, "--tokens": tokens}
    return tuple(word for option, file in given.items() if file is not None for word in (option, file))


def up(
    brokers: Annotated[int, typer.Option(help="Number of brokers.")],
    data: Annotated[Path, typer.Option(metavar="DIR", help="Directory of all data: store, ports, logs.")],
    mcap: Annotated[
        float | None,
        typer.Option(
            metavar="RATE",
            help="Capacity of each broker, msg/s. Default: no limit until `srtm capacity` finds one.",
        ),
    ] = None,
    http_address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address of the distributor.")
    ] = "127.0.0.1:4190",
    ports: Annotated[
        str | None,
        typer.Option(
            metavar="FIRST-LAST", help="Ports of the brokers, two each (--mqtt: three). Default: any free ones; kept."
        ),
    ] = None,
    ready_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Exists while the cluster is ready, with what cluster.json has then."),
    ] = None,
    mqtt: Annotated[
        bool, typer.Option("--mqtt", help="Brokers speak MQTT too, with anybody on this host; ports are kept.")
    ] = False,
    tokens: Annotated[
        bool,
        typer.Option("--tokens", help="Require tokens, created in DIR: operator.token, client.token, BROKER.token."),
    ] = False,
    fitting: FittingOption = Fitting.ON_BREACH,
    scaler: ScalerOption = ScalerKind.NONE,
    scaler_command: ScalerCommandOption = "",
    json_file: JsonOption = None,
) -> int:
    """Run a whole cluster on this host. Distributor and brokers run until Ctrl-C; crashed ones restart."""
    from distributor.config import DistributorConfig
    from distributor.fitting.events import Scaler

    DistributorConfig(scaler=Scaler(scaler.value), scaler_command=scaler_command)  # checked before anything starts
    options = ["--fitting", fitting.value, "--scaler", scaler.value, "--scaler-data", str(data / "scaled")]
    options += ["--scaler-command", scaler_command] if scaler_command else []
    run = partial(
        cluster,
        brokers=brokers,
        mcap=mcap,
        data=data,
        http_address=http_address,
        ports=None if ports is None else parse_ports(ports),
        mqtt=mqtt,
        tokens=tokens,
        distributor_options=options,
        tell=Log("up").warning,
    )
    return run_service(partial(_up, run, None if ready_file is None else ReadyFile(ready_file), json_file))


async def _up(
    run: Callable[..., AbstractAsyncContextManager[Cluster]], ready_file: ReadyFile | None, json_file: str | None
) -> None:
    async with run() if ready_file is None else run(begun=ready_file.remove) as running:
        with nullcontext() if ready_file is None else ready_file.present(running.file):
            show("up", msgspec.to_builtins(running.file), json_file, partial(_announce, running.file))
            await trio.sleep_forever()


def _announce(state: ClusterFile, console: Console) -> None:
    spoken = {broker.name: f" (MQTT {broker.mqtt_address})" for broker in state.brokers if broker.mqtt_address}
    addresses = ", ".join(f"{one.name} {one.tcp_address}{spoken.get(one.name, '')}" for one in state.brokers)
    console.print(f"ready: distributor {state.distributor}, {addresses} (Ctrl-C stops)", soft_wrap=True)
