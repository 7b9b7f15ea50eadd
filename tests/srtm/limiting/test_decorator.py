"""Functions whose calls are limited."""

from __future__ import annotations

from collections.abc import Iterator

import anyio
import pytest

from srtm.errors import LimitReached, Misuse
from srtm.limiting import decorator
from srtm.limiting.decorator import limited
from srtm.limiting.local import LocalLimits
from srtm.limiting.remote import RemoteLimits
from tests.support.both_loops import both_loops


def test_calls_beyond_the_limit_are_not_made(limits: LocalLimits) -> None:
    calls: list[str] = []

    @limited(limits, "api", lambda user, text="": f"user:{user}")
    def post(user: str, text: str = "") -> int:
        """Post."""
        calls.append(user)
        return len(text)

    assert (post.__name__, post.__doc__) == ("post", "Post.")
    assert [post("a", text="four"), post("a")] == [4, 0]
    with pytest.raises(LimitReached, match="come again in 1 s") as refused:
        post("a")
    assert refused.value.retry_after_s == 1
    assert post("b") == 0
    assert calls == ["a", "a", "b"]


def test_what_costs_more_than_there_can_be_never_passes(limits: LocalLimits) -> None:
    with pytest.raises(LimitReached, match="never passes"):
        limited(limits, "api", "a", cost=3)(lambda: None)()


@both_loops
async def test_async_calls_wait_for_their_pace_and_end_when_they_end(limits: LocalLimits) -> None:
    @limited(limits, "paced", "a")
    async def paced() -> float:
        return anyio.current_time()

    first, second = await paced(), await paced()
    assert second - first == 1

    @limited(limits, "jobs", "a")
    async def job() -> None:
        with pytest.raises(LimitReached):
            await job()
        raise ValueError("broken")

    for _ in range(2):
        with pytest.raises(ValueError, match="broken"):
            await job()


def test_calls_of_threads_wait_and_end_too(limits: LocalLimits, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(decorator.time, "sleep", waited.append)
    paced = limited(limits, "paced", "a")(lambda: "done")
    assert [paced(), paced()] == ["done", "done"]
    assert waited == [1.0]
    job = limited(limits, "jobs", "a")(lambda: "done")
    assert [job(), job()] == ["done", "done"]


async def test_what_cannot_be_limited_is_told_at_once(limits: LocalLimits) -> None:
    def numbers() -> Iterator[int]:
        yield 1

    with pytest.raises(Misuse, match="numbers is a generator"):
        limited(limits, "api", "a")(numbers)
    async with RemoteLimits("http://limit") as remote:
        with pytest.raises(Misuse, match="is not async"):
            limited(remote, "api", "a")(lambda: None)
