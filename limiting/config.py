"""The settings of the limit service, with the reason for each default."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from limiting.store.address import checked_store
from srtm.contracts.contract import Mode
from srtm.errors import BadInput
from srtm.limiting.headers import FAMILIES, Family
from srtm.limiting.limiter import MOST_SUBJECTS
from srtm.net.tokens import OwnToken, Tokens

SERVED_MODES: tuple[Mode, ...] = ("local", "replicated", "exact", "auto", "store", "counter", "queue")


@dataclass(frozen=True, kw_only=True)
class LimitConfig:
    """Everything that ``srtm limit serve`` takes, parsed. Raises BadInput if it makes no sense."""

    http_address: str = "127.0.0.1:4196"  # loopback: nothing is exposed by accident; port 0: any free one
    resp_address: str | None = None  # None: no Redis protocol
    grpc_address: str | None = None  # None: no gRPC for Envoy
    most_connections: int = 1_000  # of each of these two: a process may usually open 1,024 files
    data: Path | None = None  # directory of the contracts that were submitted; None: they end with the process
    contracts: Path | None = None  # a contract file, read at every start
    plans: Path | None = None  # CSV file of the plans of subjects; None: no subject has one
    tokens: Tokens | None = field(default=None, repr=False)  # None: no token is needed
    token: OwnToken | None = field(default=None, repr=False)  # shown to the distributor
    tls_cert: str | None = None  # PEM files; None: HTTP, gRPC and the Redis protocol in clear
    tls_key: str | None = field(default=None, repr=False)
    headers: tuple[Family, ...] = FAMILIES  # of answers to gateways
    max_subjects: int = MOST_SUBJECTS  # of a namespace, and keys of the Redis protocol
    node: str | None = None  # this node's name in ``peers``
    peers: str | None = None  # NAME=HOST:PORT of all nodes, this one included; None: one node
    distributor: tuple[str, ...] = ()  # URLs, of where nodes find each other instead of by ``peers``
    nodes: int = 0  # how many must have told it before this one decides
    peers_address: str | None = None  # where peers are listened for; None: this node's own address in ``peers``
    peers_ca: str | None = None  # PEM file of who signed the nodes' certificates; None: links in clear, with MACs
    cluster_key_file: str | None = None
    mode: Mode | None = None  # of contracts that name none; None: local on one node, replicated on several
    store: str | None = field(default=None, repr=False)  # address of a Redis or Valkey, for mode ``store``
    new_cluster: bool = False  # nothing was taken before; False: what this node may have forgotten counts as taken
    metrics_contracts: int = 1_000  # with series of their own in /metrics, three for each policy
    max_body_bytes: int = 4 << 20  # 1,000 checks with the longest subjects are 1.2 MB; 10,000 contracts some 3 MB
    body_timeout_s: float = 10.0

    def __post_init__(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            missing = "tls_key" if self.tls_key is None else "tls_cert"
            raise BadInput(missing, None, "a certificate and its key must be given together")
        self._check_nodes()
        if not 0 <= self.metrics_contracts <= 1_000_000:
            raise BadInput("metrics_contracts", self.metrics_contracts, "must be 0 to 1,000,000 contracts")
        if not 1 <= self.most_connections <= 1_000_000:
            raise BadInput("most_connections", self.most_connections, "must be 1 to 1,000,000")
        if not 1_000 <= self.max_subjects <= 100_000_000:
            raise BadInput("max_subjects", self.max_subjects, "must be 1,000 to 100,000,000")

    def _check_nodes(self) -> None:
        """Check who decides: this node alone, with others, or a store."""
        if self.distributor:
            self._check_discovery()
        elif (self.peers is None) != (self.node is None):
            raise BadInput("node" if self.node is None else "peers", None, "node and peers must be given together")
        is_alone = self.peers is None and not self.distributor
        if not is_alone and self.cluster_key_file is None:
            raise BadInput("cluster_key_file", None, "must be given with peers: nodes prove themselves by this key")
        if self.store is not None:
            checked_store(self.store)
        elif self.mode == "store":
            raise BadInput("store", None, 'must be given with mode "store"')
        if is_alone and self.mode not in (None, "local", "store"):
            raise BadInput("mode", self.mode, "must be local or store on one node: give node and peers")
        if self.peers_ca is not None and self.tls_cert is None:
            raise BadInput("tls_cert", None, "must be given with peers_ca: nodes show this certificate to each other")

    def _check_discovery(self) -> None:
        if self.peers is not None:
            raise BadInput("peers", self.peers, "must not be given with distributor, which knows them")
        for option, value in (("node", self.node), ("peers_address", self.peers_address)):
            if value is None:
                raise BadInput(option, None, "must be given with distributor: it tells the others who and where we are")
        if not 2 <= self.nodes <= 64:
            raise BadInput("nodes", self.nodes, "must be 2 to 64 with distributor: how many nodes there are at first")


def mode_named(text: str) -> Mode:
    """Read the name of a mode. Raises BadInput."""
    for mode in SERVED_MODES:
        if text == mode:
            return mode
    raise BadInput("mode", text, f"must be {', '.join(SERVED_MODES)}")


def header_families(text: str) -> tuple[Family, ...]:
    """Read a list of header families, separated by commas; "none": no headers. Raises BadInput."""
    names = [] if text == "none" else [name.strip() for name in text.split(",")]
    found = tuple(family for family in FAMILIES if family in names)
    if len(found) != len(names):
        raise BadInput("headers", text, f"must be of {', '.join(FAMILIES)}, separated by commas; or none")
    return found
