"""Who is on the testbed: hosts, their addresses and their links. Pure.

The paper has seven hosts: brokers on two, publishers on two, subscribers on two, control on one (section 6). All hang
on one switch. A link's delay, jitter and loss count for each packet on it, one way: a message from a publisher to a
broker takes the delays of both their links.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from ipaddress import IPv4Network

from srtm.errors import BadInput

NETWORK = IPv4Network("10.99.0.0/24")  # nobody's but the testbed's: namespaces have routes of their own
SWITCH = "switch"
MOST_OF_A_ROLE = 32
_FIRST = {"control": 1, "broker": 11, "publisher": 51, "subscriber": 101}
LONGEST_MS = 10_000.0


@dataclass(frozen=True, kw_only=True)
class Link:
    """One way. ``loss``: part of the packets, 0 to 1; ``jitter_ms``: up to so much more for a packet, drawn evenly."""

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    loss: float = 0.0

    @property
    def is_emulated(self) -> bool:
        """Whether packets are late or lost on it."""
        return bool(self.delay_ms or self.jitter_ms or self.loss)


SETTINGS = tuple(one.name for one in fields(Link))


@dataclass(frozen=True, kw_only=True)
class Host:
    name: str
    role: str
    address: str
    link: Link = field(default_factory=Link)

    @property
    def hardware_address(self) -> str:
        """Of its device: locally administered, made of ``address``."""
        return ":".join(["02", "00", *(f"{int(part):02x}" for part in self.address.split("."))])


@dataclass(frozen=True)
class Layout:
    hosts: Sequence[Host]

    def of(self, role: str) -> list[Host]:
        return [host for host in self.hosts if host.role == role]

    @property
    def control(self) -> Host:
        return self.of("control")[0]

    @property
    def emulated(self) -> list[Host]:
        return [host for host in self.hosts if host.link.is_emulated]


def hosts(
    *, brokers: int = 2, publishers: int = 2, subscribers: int = 2, link: Link | None = None, each: Sequence[str] = ()
) -> Layout:
    """Numbered from 1. ``link``: of all; ``each``: words like ``broker2:delay_ms=5`` or, for all of a role,
    ``broker:loss=0.01``, later ones over earlier ones. Raises BadInput."""
    everybody = checked_link(link or Link())
    counts = {"control": 1, "broker": brokers, "publisher": publishers, "subscriber": subscribers}
    made = [
        Host(name=f"{role}{number + 1}" if role != "control" else role, role=role, address=address, link=everybody)
        for role, count in counts.items()
        for number, address in enumerate(_addresses(role, count))
    ]
    for words in each:
        made = _changed(made, words)
    return Layout(made)


def _addresses(role: str, count: int) -> list[str]:
    if not 1 <= count <= MOST_OF_A_ROLE:
        raise BadInput(f"{role}s", count, f"must be 1 to {MOST_OF_A_ROLE}")
    return [str(NETWORK[_FIRST[role] + number]) for number in range(count)]


def checked_link(link: Link) -> Link:
    """``link``. Raises BadInput."""
    for name in ("delay_ms", "jitter_ms"):
        value = getattr(link, name)
        if not 0 <= value <= LONGEST_MS:
            raise BadInput(name, value, f"must be 0 to {LONGEST_MS:g} ms")
    if not 0 <= link.loss < 1:
        raise BadInput("loss", link.loss, "must be a part of the packets, 0 to less than 1")
    return link


def _changed(made: Sequence[Host], words: str) -> list[Host]:
    who, _, setting = words.partition(":")
    name, _, value = setting.partition("=")
    if who not in {host.name for host in made} | {host.role for host in made}:
        raise BadInput("host", words, f"must begin with a host or a role: {', '.join(host.name for host in made)}")
    if name not in SETTINGS or not value:
        raise BadInput("host", words, f"must be HOST:NAME=VALUE, with a name of {', '.join(SETTINGS)}")
    return [_with(host, name, value) if who in (host.name, host.role) else host for host in made]


def _with(host: Host, name: str, text: str) -> Host:
    given = {one.name: getattr(host.link, one.name) for one in fields(Link)}
    return replace(host, link=checked_link(Link(**{**given, name: _number(name, text)})))


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadInput(name, text, "must be a number") from None
