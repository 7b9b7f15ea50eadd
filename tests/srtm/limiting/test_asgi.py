"""The middleware of ASGI applications: headers, refusals, open requests, waits, WebSockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import httpx
import msgspec
import pytest

from srtm.errors import NotFound, Unavailable
from srtm.limiting.answers import Answer
from srtm.limiting.asgi import ANSWER, LimitMiddleware
from srtm.limiting.local import LocalLimits
from srtm.limiting.remote import RemoteLimits
from tests.support.both_loops import both_loops
from tests.support.limit_clock import Clock

S = 10**9


async def hello(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-own", b"1")]})
    await send({"type": "http.response.body", "body": b"hello"})


async def asked(app: Any, path: str = "/", client: str = "10.0.0.1") -> httpx.Response:
    transport = httpx.ASGITransport(app=app, client=(client, 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://app") as asking:
        return await asking.get(path)


@both_loops
async def test_a_request_that_passes_is_told_what_is_left(limits: LocalLimits) -> None:
    answer = await asked(LimitMiddleware(hello, limits, "api"))
    assert (answer.status_code, answer.content, answer.headers["x-own"]) == (200, b"hello", "1")
    assert answer.headers["ratelimit-policy"] == '"burst";q=2;w=2'
    assert answer.headers["ratelimit"] == '"burst";r=1;t=1'
    assert answer.headers["x-ratelimit-remaining"] == "1"


@both_loops
async def test_a_refused_request_does_not_reach_the_application(limits: LocalLimits, clock: Clock) -> None:
    reached = []

    async def noting(scope: Any, receive: Any, send: Any) -> None:
        reached.append(scope["path"])
        await hello(scope, receive, send)

    app = LimitMiddleware(noting, limits, "api")
    answers = [await asked(app, f"/{number}") for number in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert reached == ["/0", "/1"]
    assert answers[2].headers["retry-after"] == "1"
    assert answers[2].headers["content-type"] == "application/problem+json"
    assert msgspec.json.decode(answers[2].content)["violated-policies"] == ["burst"]
    assert (await asked(app, client="10.0.0.2")).status_code == 200, "another client is another subject"
    clock.now = S
    assert (await asked(app)).status_code == 200


async def test_who_is_charged_and_how_much_is_the_applications_word(limits: LocalLimits) -> None:
    def subject(scope: Any) -> str | None:
        return None if scope["path"] == "/health" else "everybody"

    app = LimitMiddleware(hello, limits, "api", subject=subject, cost=lambda scope: 2)
    assert [(await asked(app)).status_code for _ in range(2)] == [200, 429]
    free = await asked(app, "/health")
    assert free.status_code == 200
    assert "ratelimit" not in free.headers


async def test_a_request_may_be_corrected_by_what_it_came_to(limits: LocalLimits, clock: Clock) -> None:
    async def dear(scope: Any, receive: Any, send: Any) -> None:
        limits.correct(scope[ANSWER].grant, 4)
        await hello(scope, receive, send)

    app = LimitMiddleware(dear, limits, "api")
    assert (await asked(app)).status_code == 200
    clock.now = 2 * S
    assert (await asked(app)).status_code == 429, "it owes two tokens, and has earned two"


@both_loops
async def test_open_requests_are_released_by_their_end_an_error_or_a_client_that_leaves(limits: LocalLimits) -> None:
    entered = anyio.Event()

    async def working(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/error":
            raise ValueError("broken")
        if scope["path"] == "/long":
            entered.set()
            await anyio.sleep_forever()
        await hello(scope, receive, send)

    app = LimitMiddleware(working, limits, "jobs")
    assert [(await asked(app)).status_code for _ in range(2)] == [200, 200]
    with pytest.raises(ValueError, match="broken"):
        await asked(app, "/error")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asked, app, "/long")
        await entered.wait()
        assert (await asked(app)).status_code == 429
        tasks.cancel_scope.cancel()
    assert (await asked(app)).status_code == 200


@both_loops
async def test_a_pace_makes_who_comes_early_wait(limits: LocalLimits) -> None:
    app = LimitMiddleware(hello, limits, "paced")
    begun = anyio.current_time()
    assert [(await asked(app)).status_code for _ in range(3)] == [200, 200, 429]
    assert anyio.current_time() - begun == 1


class Refusing:
    """Limits that cannot be asked."""

    def check(self, *_: object) -> Answer:
        raise Unavailable("the limit service cannot be asked")

    def correct(self, *_: object) -> None:
        raise Unavailable("away")

    def release(self, *_: object) -> None:
        raise Unavailable("away")


async def test_what_cannot_be_checked_is_an_answer_of_its_own(limits: LocalLimits) -> None:
    closed = await asked(LimitMiddleware(hello, Refusing(), "api"))
    assert (closed.status_code, closed.headers["retry-after"]) == (503, "1")
    long = await asked(LimitMiddleware(hello, limits, "api", subject=lambda scope: "x" * 65_536))
    assert long.status_code == 400
    assert "must be 1 to 1024 bytes" in msgspec.json.decode(long.content)["detail"]
    with pytest.raises(NotFound, match="contract"):
        await asked(LimitMiddleware(hello, limits, "unknown"))


async def test_a_release_that_fails_harms_no_request(limits: LocalLimits, capsys: pytest.CaptureFixture[str]) -> None:
    class Away(Refusing):
        def check(self, *_: object) -> Answer:
            return Answer(True, grant="g", is_open=True)

    assert (await asked(LimitMiddleware(hello, Away(), "jobs"))).status_code == 200
    assert "not_released" in capsys.readouterr().err


async def websocket(app: Any, extensions: dict[str, Any]) -> list[Any]:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await app({"type": "websocket", "path": "/", "client": ("10.0.0.1", 1), "extensions": extensions}, receive, send)
    return sent


async def accept(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "websocket.accept"})


async def test_websockets_are_limited_before_they_are_accepted(limits: LocalLimits) -> None:
    app = LimitMiddleware(accept, limits, "api")
    (accepted,) = await websocket(app, {})
    assert (b"ratelimit", b'"burst";r=1;t=1') in accepted["headers"]
    await websocket(app, {})
    assert (await websocket(app, {}))[0] == {"type": "websocket.close", "code": 1008, "reason": "quota exceeded"}
    start, body = await websocket(app, {"websocket.http.response": {}})
    assert (start["type"], start["status"], body["type"]) == (
        "websocket.http.response.start",
        429,
        "websocket.http.response.body",
    )


async def test_remote_limits_are_closed_with_the_application() -> None:
    closed = []

    class Noting(RemoteLimits):
        async def aclose(self) -> None:
            closed.append(1)
            await super().aclose()

    async def lifespan(scope: Any, receive: Any, send: Any) -> None:
        assert closed == []

    limits = Noting("http://limit")
    await LimitMiddleware(lifespan, limits, "api")({"type": "lifespan"}, unused, unused)  # type: ignore[arg-type]
    assert closed == [1]


async def unused(*_: Any) -> AsyncIterator[Any]:
    raise AssertionError
