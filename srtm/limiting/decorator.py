"""A decorator that limits calls of a function, async or not."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar, cast

import anyio

from srtm.errors import LimitReached, Misuse
from srtm.limiting.answers import Answer, BlockingLimits, Limits, awaited
from srtm.limiting.remote import RemoteLimits

_P = ParamSpec("_P")
_T = TypeVar("_T")
_RELEASE_S = 1.0


def limited(
    limits: Limits | BlockingLimits, namespace: str, subject: str | Callable[_P, str], *, cost: int = 1
) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Check each call before it is made. A refused one raises LimitReached, and the function is not called.

    ``subject``: the subject, or a function of the call's arguments that returns it. An async function takes any limits,
    another one ``LocalLimits`` or ``BlockingRemoteLimits``; else Misuse. A policy of kind ``concurrency`` counts a call
    until it ends. Raises at a call also BadInput, NotFound, Unavailable.
    """

    def decorate(function: Callable[_P, _T]) -> Callable[_P, _T]:
        name = getattr(function, "__qualname__", repr(function))
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise Misuse(f"{name} is a generator, which runs after its call: limit the function that goes through it")

        def subject_of(*args: _P.args, **kwargs: _P.kwargs) -> str:
            return subject if isinstance(subject, str) else subject(*args, **kwargs)

        if inspect.iscoroutinefunction(function):
            return cast(Callable[_P, _T], _limited_async(function, limits, namespace, subject_of, cost))
        if isinstance(limits, RemoteLimits):
            raise Misuse(f"{name} is not async: limit it by LocalLimits or BlockingRemoteLimits")
        return _limited_blocking(function, cast(BlockingLimits, limits), namespace, subject_of, cost)

    return decorate


def _limited_async(
    function: Callable[_P, Coroutine[Any, Any, _T]],
    limits: Limits | BlockingLimits,
    namespace: str,
    subject_of: Callable[_P, str],
    cost: int,
) -> Callable[_P, Coroutine[Any, Any, _T]]:
    @functools.wraps(function)
    async def limited_call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        answer = _admitted(await awaited(limits.check(namespace, subject_of(*args, **kwargs), cost)))
        try:
            if answer.wait_s:
                await anyio.sleep(answer.wait_s)
            return await function(*args, **kwargs)
        finally:
            if answer.is_open:
                with anyio.move_on_after(_RELEASE_S, shield=True):
                    await awaited(limits.release(answer.grant or b""))

    return limited_call


def _limited_blocking(
    function: Callable[_P, _T], limits: BlockingLimits, namespace: str, subject_of: Callable[_P, str], cost: int
) -> Callable[_P, _T]:
    @functools.wraps(function)
    def limited_call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        answer = _admitted(limits.check(namespace, subject_of(*args, **kwargs), cost))
        try:
            if answer.wait_s:
                time.sleep(answer.wait_s)
            return function(*args, **kwargs)
        finally:
            if answer.is_open:
                limits.release(answer.grant or b"")

    return limited_call


def _admitted(answer: Answer) -> Answer:
    if answer.allowed:
        return answer
    later = "and never passes" if answer.wait_s is None else f"come again in {answer.wait_s:g} s"
    raise LimitReached(f"the limit is reached; {later}", answer.wait_s)
