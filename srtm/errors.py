"""The exceptions of SRTM, one class for each party at fault.

Every error that a person can meet is one of these. Its text says what is wrong, where, which rule holds, and what to
do. Services answer with ``problem+json`` (``title, detail, field, value, rule``) and the status ``http_status``. The
command line prints ``str(error)`` and ends with ``exit_status``.
"""

from __future__ import annotations

from collections.abc import Collection

NATIVE = "srtm._native"


class SrtmError(Exception):
    """Base of all errors. Only the classes below are raised."""

    title = "error"
    http_status = 500
    exit_status = 1


class BadInput(SrtmError):
    """The input breaks a rule: ``field`` had ``value``, and ``rule`` says what is allowed. Nothing was changed.

    The caller must correct the input.
    """

    title = "bad input"
    http_status = 400
    exit_status = 2

    def __init__(self, field: str, value: object, rule: str) -> None:
        super().__init__(_refused(field, value, rule))
        self.field = field
        self.value = value
        self.rule = rule


class Unauthorized(BadInput):
    """The bearer token is missing or unknown."""

    title = "unauthorized"
    http_status = 401

    def __init__(self) -> None:
        super().__init__("Authorization", "(not shown)", "must be 'Bearer TOKEN' with a token of this service")


class Forbidden(BadInput):
    """The bearer token is known, but its scope does not allow the request."""

    title = "forbidden"
    http_status = 403

    def __init__(self, name: str, scope: str, needed: Collection[str]) -> None:
        rule = f"the token of {name!r} has the scope {scope}; this needs {' or '.join(needed)}"
        super().__init__("Authorization", "(not shown)", rule)


class NotItsName(Forbidden):
    """The bearer token is that of another broker."""

    def __init__(self, name: str, broker: str) -> None:
        rule = f"the token of {name!r} does not speak for broker {broker!r}"
        BadInput.__init__(self, "Authorization", "(not shown)", rule)


class NotFound(SrtmError):
    """The named thing does not exist: a topic, broker, publisher, channel or path.

    ``rule``: what must be there, where the kind alone does not say so.
    """

    title = "not found"
    http_status = 404
    exit_status = 2

    def __init__(self, kind: str, name: str, rule: str | None = None) -> None:
        plain = f"the {kind} must exist"
        why = "" if rule in (None, plain) else f": {rule}"
        super().__init__(f"{kind} {shown(name)} is not known here{why}")
        self.field = kind
        self.value = name
        self.rule = rule or plain


class Conflict(SrtmError):
    """The request is valid, but the present state does not allow it (a managed topic, a stale version).

    Nothing was changed.
    """

    title = "conflict"
    http_status = 409
    exit_status = 1

    def __init__(self, field: str, value: object, rule: str) -> None:
        super().__init__(_refused(field, value, rule))
        self.field = field
        self.value = value
        self.rule = rule


class PeerError(SrtmError):
    """The peer broke the protocol: a broker, client or server sent what it must not send."""

    title = "peer error"
    http_status = 502


class PublishRefused(SrtmError):
    """The broker refused a message. ``retry_after_ms`` is set if the topic's bucket or a contract refused it."""

    title = "publish refused"
    http_status = 429

    def __init__(self, message: str, retry_after_ms: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms


class LimitReached(SrtmError):
    """A contract refused a call. ``retry_after_s``: when it may pass; None: never."""

    title = "quota exceeded"
    http_status = 429

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Unavailable(SrtmError):
    """Something needed cannot be reached or is full now. Trying again may help."""

    title = "unavailable"
    http_status = 503

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Misuse(SrtmError):
    """A program uses the client library in a way that cannot work. The text says what to write instead."""

    title = "misuse"


class Closed(SrtmError):
    """The publisher or subscriber was closed before or during the call."""

    title = "closed"


class NotBuilt(Unavailable):
    """The extension in Rust is missing and must be built."""

    title = "not built"

    def __init__(self) -> None:
        super().__init__(f"{NATIVE}, the engine in Rust, is not built in this checkout: run make build")


class NotInstalled(Unavailable):
    """A library that only measurements need is missing."""

    title = "not installed"

    def __init__(self, library: str) -> None:
        super().__init__(f"{library}, which measurements need, is not installed: pip install 'srtm-messaging[bench]'")


class NotLeader(Unavailable):
    """This distributor is a standby and changes nothing. ``leader`` is the leader's URL; None: unknown."""

    title = "standby"

    def __init__(self, leader: str | None) -> None:
        where = f"the leader is {leader}" if leader else "which one leads is not known yet"
        super().__init__(f"this distributor is a standby and changes nothing; {where}", 1.0)
        self.leader = leader


class InternalError(SrtmError):
    """Our own code broke a rule. This is a bug: please report it."""

    title = "internal error"


def _refused(field: str, value: object, rule: str) -> str:
    """Return the text of a refusal. A field that was not given has no value to show."""
    return f"{field}: {rule}" if value is None else f"{field}: {shown(value)}: {rule}"


def shown(value: object, limit: int = 80) -> str:
    """Format ``value`` for an error message: text in quotes, cut at ``limit`` characters."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
