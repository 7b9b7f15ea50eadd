"""The middleware of WSGI applications: headers, refusals, open requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import httpx
import msgspec
import pytest

from srtm.errors import NotFound, Unavailable
from srtm.limiting import wsgi
from srtm.limiting.answers import Answer
from srtm.limiting.local import LocalLimits
from srtm.limiting.wsgi import LimitMiddleware
from tests.support.limit_clock import Clock

S = 10**9


def hello(environ: Any, start_response: Any) -> Iterable[bytes]:
    start_response("200 OK", [("X-Own", "1")])
    return [b"hello"]


def asked(app: Any, path: str = "/") -> httpx.Response:
    transport = httpx.WSGITransport(app=app, remote_addr="10.0.0.1")
    with httpx.Client(transport=transport, base_url="http://app") as asking:
        return asking.get(path)


def test_requests_pass_until_the_limit_and_are_told(limits: LocalLimits, clock: Clock) -> None:
    app = LimitMiddleware(hello, limits, "api")
    answers = [asked(app) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[0].headers["x-own"] == "1"
    assert answers[0].headers["ratelimit"] == '"burst";r=1;t=1'
    assert answers[2].headers["retry-after"] == "1"
    assert msgspec.json.decode(answers[2].content)["violated-policies"] == ["burst"]
    clock.now = S
    assert asked(app).status_code == 200


def test_who_is_charged_and_how_much_is_the_applications_word(limits: LocalLimits) -> None:
    app = LimitMiddleware(
        hello,
        limits,
        "api",
        subject=lambda environ: None if environ["PATH_INFO"] == "/health" else "everybody",
        cost=lambda environ: 2,
    )
    assert [asked(app, path).status_code for path in ("/", "/", "/health")] == [200, 429, 200]


def test_an_open_request_lasts_until_its_response_is_sent(limits: LocalLimits) -> None:
    inner: list[int] = []

    def streaming(environ: Any, start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", [])
        inner.append(asked(app).status_code if environ["PATH_INFO"] == "/outer" else 0)
        yield b"part"

    app = LimitMiddleware(streaming, limits, "jobs")
    assert asked(app, "/outer").status_code == 200
    assert inner == [429]
    assert asked(app).status_code == 200


def test_an_application_that_fails_releases_its_request(limits: LocalLimits) -> None:
    def failing(environ: Any, start_response: Any) -> Iterable[bytes]:
        raise ValueError("broken")

    for _ in range(2):
        with pytest.raises(ValueError, match="broken"):
            asked(LimitMiddleware(failing, limits, "jobs"))


def test_a_pace_makes_who_comes_early_wait(limits: LocalLimits, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(wsgi.time, "sleep", waited.append)
    app = LimitMiddleware(hello, limits, "paced")
    assert [asked(app).status_code for _ in range(3)] == [200, 200, 429]
    assert waited == [1.0]


def test_what_cannot_be_checked_is_an_answer_of_its_own(limits: LocalLimits) -> None:
    class Away:
        def check(self, *_: object) -> Answer:
            raise Unavailable("away")

        def correct(self, grant: str | bytes, cost: int) -> None: ...

        def release(self, grant: str | bytes) -> None: ...

    closed = asked(LimitMiddleware(hello, Away(), "api"))
    assert (closed.status_code, closed.headers["retry-after"]) == (503, "1")
    assert asked(LimitMiddleware(hello, limits, "api", subject=lambda environ: "")).status_code == 400
    with pytest.raises(NotFound):
        asked(LimitMiddleware(hello, limits, "unknown"))
