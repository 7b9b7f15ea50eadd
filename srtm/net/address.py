"""Addresses: ``HOST:PORT`` as text and as a pair, by one rule for all services."""

from __future__ import annotations

import ipaddress
import re

from srtm.errors import BadInput


def parse_address(field: str, text: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT`` (``[::1]:4150`` for IPv6). No host means 0.0.0.0. Raises BadInput."""
    host, colon, port = text.rpartition(":")
    if not colon or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
        raise BadInput(field, text, "must be HOST:PORT with a port from 0 to 65535")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if any(character.isspace() for character in bare) or (":" in bare and bare == host):
        raise BadInput(field, text, "must be HOST:PORT, an IPv6 host in square brackets")
    return resolvable(field, text, bare) or "0.0.0.0", int(port)


def resolvable(field: str, text: str, host: str) -> str:
    """Return ``host`` of the address ``text``. Raises BadInput if no resolver accepts it."""
    try:
        host.encode("idna")
    except UnicodeError:
        raise BadInput(field, text, "must have a host name") from None
    if not host.isprintable():
        raise BadInput(field, text, "must have a host name")
    return host


def check_host(field: str, text: str) -> None:
    """Raise BadInput unless ``text`` is a host alone: a name, or an address of IPv4 or IPv6, without a port."""
    rule = "must be a host without a port, an IPv6 one without brackets"
    if not text or "/" in text or any(character.isspace() for character in text):
        raise BadInput(field, text, rule)
    resolvable(field, text, text)
    if ":" in text:
        try:
            ipaddress.IPv6Address(text)
        except ValueError:
            raise BadInput(field, text, rule) from None


def is_socket_path(text: str) -> bool:
    """Whether ``text`` is the path of a Unix socket: it has a slash. A bare word is more likely a mistyped host."""
    return "/" in text


def is_loopback(text: str) -> bool:
    """Whether nothing beyond this machine reaches an address to listen on: a Unix socket, or a loopback host."""
    if is_socket_path(text):
        return True
    host, _ = parse_address("address", text)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listen_address(field: str, text: str) -> str:
    """Return the path of a Unix socket unchanged, or ``HOST:PORT`` with 0.0.0.0 for no host. Raises BadInput."""
    return text if is_socket_path(text) else format_address(*parse_address(field, text))


def parse_peer(field: str, text: str) -> tuple[str, int]:
    """Return host and port of an address to connect to, which must have a host. Raises BadInput."""
    if text.startswith(":"):
        raise BadInput(field, text, "must be HOST:PORT, with a host")
    return parse_address(field, text)


def format_address(host: str, port: int) -> str:
    """Return ``HOST:PORT``, an IPv6 host in square brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
