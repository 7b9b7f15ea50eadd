"""The one exception family of SRTM, sorted by whose fault it is.

Every refusal that a person can meet is one of these, and says what was wrong, where, which rule, and what to do.
Services map them to ``problem+json`` (``title, detail, field, value, rule``) with the status in ``http_status``; the
command line maps them to the exit status in ``exit_status`` and prints ``str(error)``, never a traceback.
"""

from __future__ import annotations

from collections.abc import Collection

NATIVE = "srtm._native"


class SrtmError(Exception):
    """What every error of ours is. Raised only as one of the classes below."""

    title = "error"
    http_status = 500
    exit_status = 1


class BadInput(SrtmError):
    """What you gave breaks a rule: ``field`` had ``value``, the ``rule`` says otherwise. Nothing was changed. Yours
    to mend."""

    title = "bad input"
    http_status = 400
    exit_status = 2

    def __init__(self, field: str, value: object, rule: str) -> None:
        super().__init__(_refused(field, value, rule))
        self.field = field
        self.value = value
        self.rule = rule


class Unauthorized(BadInput):
    """The bearer token is missing, or not known here."""

    title = "unauthorized"
    http_status = 401

    def __init__(self) -> None:
        super().__init__("Authorization", "(not shown)", "must be 'Bearer TOKEN' with a token of this service")


class Forbidden(BadInput):
    """The bearer token is known here, and may not do this."""

    title = "forbidden"
    http_status = 403

    def __init__(self, name: str, scope: str, needed: Collection[str]) -> None:
        rule = f"the token of {name!r} has the scope {scope}; this needs {' or '.join(needed)}"
        super().__init__("Authorization", "(not shown)", rule)


class NotFound(SrtmError):
    """You named a thing that is not there: a topic, a broker, a publisher, a channel."""

    title = "not found"
    http_status = 404
    exit_status = 2

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"{kind} {shown(name)} is not known here")
        self.field = kind
        self.value = name
        self.rule = f"the {kind} must exist"


class Conflict(SrtmError):
    """What you ask is fine in itself but not in the present state (a managed topic, a stale version). Nothing was
    changed."""

    title = "conflict"
    http_status = 409
    exit_status = 1

    def __init__(self, field: str, value: object, rule: str) -> None:
        super().__init__(_refused(field, value, rule))
        self.field = field
        self.value = value
        self.rule = rule


class PeerError(SrtmError):
    """The other side broke the protocol: a broker, client or server sent what it must not. Theirs to mend."""

    title = "peer error"
    http_status = 502


class PublishRefused(SrtmError):
    """The broker refused a message; ``retry_after_ms`` is set when it was the topic's token bucket that refused it."""

    title = "publish refused"
    http_status = 429

    def __init__(self, message: str, retry_after_ms: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms


class Unavailable(SrtmError):
    """Nobody's fault: something needed cannot be reached or is full just now. Trying again may help."""

    title = "unavailable"
    http_status = 503

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class NotBuilt(Unavailable):
    """The extension in Rust is missing; only building it helps."""

    title = "not built"

    def __init__(self) -> None:
        super().__init__(f"{NATIVE}, the engine in Rust, is not built in this checkout: run make build")


class NotLeader(Unavailable):
    """This distributor stands by for another one, which leads; ``leader`` is that one's URL, where it is known."""

    title = "standby"

    def __init__(self, leader: str | None) -> None:
        where = f"the leader is {leader}" if leader else "which one leads is not known yet"
        super().__init__(f"this distributor stands by and changes nothing; {where}", 1.0)
        self.leader = leader


class InternalError(SrtmError):
    """A rule of our own was broken by our own code: please report it."""

    title = "internal error"


def _refused(field: str, value: object, rule: str) -> str:
    """What was not given has no value to show."""
    return f"{field}: {rule}" if value is None else f"{field}: {shown(value)}: {rule}"


def shown(value: object, limit: int = 80) -> str:
    """``value`` as an error message shows it: quoted if text, cut at ``limit`` characters."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
