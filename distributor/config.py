"""The settings of the distributor, with the reason for each default."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from pathlib import Path

from distributor.fitting.events import Scaler
from distributor.fitting.task import Method
from srtm.errors import BadInput
from srtm.net.address import check_host
from srtm.net.tokens import Tokens


@dataclass(frozen=True, kw_only=True)
class DistributorConfig:
    """Everything that ``srtm distributor`` takes, parsed. Raises BadInput if it makes no sense."""

    http_address: str = "127.0.0.1:4190"  # loopback: nothing is exposed by accident; port 0: any free one
    store: str = field(default="sqlite:///srtm.sqlite3", repr=False)  # a URL of PostgreSQL may have a password in it
    adopt_brokers: bool = False  # take brokers of another cluster, and so drop the limits that they keep
    broadcast_address: str | None = None  # None: the host of http_address, or the host name where that is a wildcard
    tokens: Tokens | None = field(default=None, repr=False)  # None: no token is needed
    tls_cert: str | None = None  # PEM files; None: HTTP in clear
    tls_key: str | None = field(default=None, repr=False)
    liveness_s: float = 5.0  # a broker syncs every second; after five missed syncs it gets no new publishers
    rejoin_grace_s: float = 10.0  # `srtm up` restarts a crashed broker at once: no reason to move its publishers
    inactive_producer_s: float = 300.0  # nsqlookupd's --inactive-producer-timeout
    fitting: Method = "on-breach"  # of topics whose submission does not name one
    scaler: Scaler = Scaler.NONE  # starts only what the operator asks for
    scaler_command: str = ""  # run by the operator's shell
    scaler_data: Path = Path("scaled")  # directory of the brokers that "process" starts
    scaler_options: tuple[str, ...] = ()  # more options of those brokers, such as tokens and certificates
    relief: bool = True  # move publishers of a topic whose promise is broken; else it is said what would be done
    fitting_grace_s: float = 15.0  # that a promise must be broken: what passes within seconds is left alone
    fitting_moves: int = 200  # publishers that move at once where other topics are: few enough to be taken back
    fitting_cool_down_s: float = 300.0  # after a search; the verdict covers the last minute, which must lie behind it
    metrics_topics: int = 1_000  # topics with series of their own in /metrics: some ten lines each, and eight a share
    longest_wait_s: float = 30.0  # of a long poll
    # not a setting: shows that two addresses are of one process
    instance: str = field(default_factory=lambda: secrets.token_hex(8))
    max_body_bytes: int = 256 << 20  # a million publishers as JSON are about 60 MB
    body_timeout_s: float = 60.0  # a million publishers need 8 Mbit/s

    def __post_init__(self) -> None:
        if (self.scaler is Scaler.COMMAND) != bool(self.scaler_command):
            rule = 'must be given with scaler "command", and only then'
            raise BadInput("scaler_command", self.scaler_command, rule)
        if self.broadcast_address is not None:
            check_host("broadcast_address", self.broadcast_address)
        if (self.tls_cert is None) != (self.tls_key is None):
            missing = "tls_key" if self.tls_key is None else "tls_cert"
            raise BadInput(missing, None, "a certificate and its key must be given together")
        if not 1 <= self.fitting_grace_s <= 3600:
            raise BadInput("fitting_grace_s", self.fitting_grace_s, "must be 1 to 3600 seconds")
        if not 1 <= self.fitting_moves <= 1_000_000:
            raise BadInput("fitting_moves", self.fitting_moves, "must be 1 to 1,000,000 publishers")
        if not 0 <= self.metrics_topics <= 1_000_000:
            raise BadInput("metrics_topics", self.metrics_topics, "must be 0 to 1,000,000 topics")
        if not 0 <= self.fitting_cool_down_s <= 86_400:
            raise BadInput("fitting_cool_down_s", self.fitting_cool_down_s, "must be 0 to 86,400 seconds")
