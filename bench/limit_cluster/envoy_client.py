"""The stock gRPC client as a load on Envoy's rate limit service. A process of its own, which prints JSON.

    python -m bench.limit_cluster.envoy_client HOST:PORT SECONDS RATE

RATE 0: 64 calls are always open, and the calls are counted. Else it is an open loop: calls begin at even instants,
whether or not others have ended, and are as late as their answers are after these.
"""

from __future__ import annotations

import sys
import threading
import time

import grpc
import msgspec

METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
SUBJECTS = 1_000
_OPEN = 64
_WARM_S = 1.0
_LAST_S = 10.0  # for answers that are still to come


class Load(msgspec.Struct):
    """What came of it. ``late_us``: of each answer; ``wrong``: calls without the answer OK."""

    calls: int
    seconds: float
    wrong: int
    late_us: list[int]


def request(subject: int) -> bytes:
    """A RateLimitRequest of the domain ``edge`` with one descriptor; all lengths are below 128."""
    value = b"10.0.%d.%d" % divmod(subject, 256)
    entry = _content(1, b"remote_address") + _content(2, value)
    return _content(1, b"edge") + _content(2, _content(1, entry))


def _content(field: int, data: bytes) -> bytes:
    return bytes([field << 3 | 2, len(data)]) + data


def run(address: str, seconds: float, rate: float) -> Load:
    """Ask for ``seconds``, and a second before that, which is not counted."""
    with grpc.insecure_channel(address) as channel:
        method = channel.unary_unary(METHOD)
        method(request(0), timeout=_LAST_S, wait_for_ready=True)
        begin = time.perf_counter() + _WARM_S
        end = begin + seconds
        late: list[tuple[float, float]] = []  # when it was due, when it was answered
        wrong: list[str] = []
        room = threading.Semaphore(_OPEN if rate == 0 else 1_000_000)
        sent = 0

        def ask(due: float) -> None:
            def answered(call: grpc.Future) -> None:
                error = call.exception()
                late.append((due, time.perf_counter()))
                if error is not None or not call.result().startswith(b"\x08\x01"):
                    wrong.append(str(error))
                room.release()

            room.acquire()
            method.future(request(sent % SUBJECTS), timeout=_LAST_S).add_done_callback(answered)

        due = begin - _WARM_S
        while due < end:
            time.sleep(max(0.0, due - time.perf_counter()))
            ask(due)
            sent += 1
            due = due + 1 / rate if rate else time.perf_counter()
        deadline = time.perf_counter() + _LAST_S
        while len(late) < sent and time.perf_counter() < deadline:
            time.sleep(0.01)
        counted = [(due, at) for due, at in late if begin <= due < end]
        lost = sent - len(late)
        return Load(len(counted), seconds, len(wrong) + lost, [round((at - due) * 1e6) for due, at in counted])


if __name__ == "__main__":
    _, where, length, wanted = sys.argv
    sys.stdout.buffer.write(msgspec.json.encode(run(where, float(length), float(wanted))))
