"""The sessions, by what they are about."""

from tests.interop.drop_in.session import Session
from tests.interop.drop_in.sessions import (
    auth,
    commands,
    delivery,
    encryption,
    files,
    flags,
    http_api,
    identify,
    numbers,
    publishing_http,
    restarts,
    shutdowns,
)

MODULES = (
    commands, identify, numbers, delivery, http_api, publishing_http, encryption, auth, restarts, shutdowns, flags,
    files,
)  # fmt: skip
SESSIONS: tuple[Session, ...] = tuple(session for module in MODULES for session in module.SESSIONS.all)
