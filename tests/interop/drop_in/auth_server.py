"""A small server of the kind that nsqd asks about AUTH. What it is asked goes into the transcript."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

PUBLISH_AND_SUBSCRIBE = ["publish", "subscribe"]


def grant(topic: str = ".*", channels: tuple[str, ...] = (".*",), permissions: object = None) -> dict[str, object]:
    allowed = PUBLISH_AND_SUBSCRIBE if permissions is None else permissions
    return {"topic": topic, "channels": list(channels), "permissions": allowed}


def _answer(*grants: dict[str, object], ttl: object = 3600, **more: object) -> tuple[int, str]:
    return 200, json.dumps({"ttl": ttl, "identity": "who", "identity_url": "", "authorizations": grants, **more})


ANSWERS = {
    "all": _answer(grant()),
    "named": _answer(grant(), identity_url="http://who", identity="Who Else"),
    "two grants": _answer(grant("^only$", ("^ch$",)), grant("^other$")),
    "one channel": _answer(grant("^only$", ("^ch$",))),
    "unanchored": _answer(grant("onl", ("c",))),
    "publish": _answer(grant(permissions=["publish"])),
    "subscribe": _answer(grant(permissions=["subscribe"])),
    "no permission": _answer(grant(permissions=[])),
    "unknown permission": _answer(grant(permissions=["destroy"])),
    "bad topic pattern": _answer(grant(topic="(")),
    "bad channel pattern": _answer(grant(channels=("[",))),
    "nobody": _answer(),
    "no ttl": _answer(grant(), ttl=0),
    "negative ttl": _answer(grant(), ttl=-1),
    "ttl as text": _answer(grant(), ttl="10"),
    "short": _answer(grant(), ttl=3),
    "short then never": _answer(grant(), ttl=3),
    "extra field": _answer(grant(), colour="red"),
    "null authorizations": (200, '{"ttl": 10, "identity": "who", "identity_url": "", "authorizations": null}'),
    "no identity": (200, '{"ttl": 10, "authorizations": [{"topic": "t", "channels": ["c"], "permissions": []}]}'),
    "wrapped": (200, '{"status_code": 200, "data": ' + _answer(grant())[1] + "}"),
    "not JSON": (200, "yes"),
    "empty": (200, ""),
    "a list": (200, "[]"),
    "201": (201, _answer(grant())[1]),
    "forbidden": (403, '{"message": "NOT_AUTHORIZED"}'),
    "broken": (500, ""),
}


class Asked:
    """Each question in order of arrival."""

    def __init__(self) -> None:
        self.questions: list[str] = []
        self.address = ""


@contextmanager
def auth_server() -> Iterator[Asked]:
    asked = Asked()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            given = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
            secret = given.get("secret", "")
            status, text = ANSWERS.get(secret, (403, "{}"))
            path = urlsplit(self.path).path
            asked.questions.append(f"GET {path} {sorted(given.items())} {self.headers.get('Accept')}")
            if secret == "short then never" and sum(secret in question for question in asked.questions) > 1:
                status = 403
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_arguments: object) -> None:
            """Nothing: what was asked is in ``asked``."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        asked.address = f"127.0.0.1:{server.server_port}"
        try:
            yield asked
        finally:
            server.shutdown()
            thread.join()
