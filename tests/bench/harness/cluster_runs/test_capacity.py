"""The benchmarking phase over a made-up broker: what is kept, what ends the climb, what is noted."""

from __future__ import annotations

import base64
from collections.abc import Callable

import numpy as np
import pytest
import trio

from bench.harness.cluster_runs import capacity as module
from bench.harness.cluster_runs.capacity import (
    CapacityOptions,
    Found,
    Step,
    disturbed,
    is_here,
    judged,
    machine_of,
    measure_capacity,
)
from bench.harness.load.run import RunResult
from bench.harness.load.workload import Plan
from srtm.errors import Conflict
from srtm.topics.capacity import Class, Machine
from srtm.topics.spec import Slo
from tests.support.run_results import result

QUIET = {"count": 10, "p50_ms": 0.1, "p95_ms": 0.1, "p99_ms": 0.1, "p999_ms": 0.1}


def report(topic: str = "cars", p99_ms: float = 0.1, received: int = 0) -> dict:
    late = {**QUIET, "p99_ms": p99_ms}
    return {"topic": topic, "received": received, "last_60s": {"access": QUIET, "processing": late}}


class Client:
    """A distributor's answers: ``reports(looks so far)``."""

    def __init__(self, reports: Callable[[int], list[dict]] = lambda _: [], **state: object) -> None:
        self._reports = reports
        self._state = {
            "alive": True,
            "accepting": True,
            "draining": False,
            "lab_service_time_ns": 0,
            "machine": None,
            **state,
        }
        self._state.setdefault("throttling", None)
        self.looks = 0

    async def broker(self, _name: str) -> dict:
        await trio.lowlevel.checkpoint()
        self.looks += 1
        return {
            "tcp_address": "127.0.0.1:1",
            "http_address": "127.0.0.1:1",
            "reports": self._reports(self.looks),
            **self._state,
        }

    async def topics(self) -> list[dict]:
        await trio.lowlevel.checkpoint()
        return [{"name": "cars", "slo": {"percentile": 99, "latency_ms": 5.0}}]


def run_of(latency_ms: float, count: int = 5000, late_part: float = 0.0, **changes: object) -> RunResult:
    latency = np.full(count, round(latency_ms * 1e6))
    latency[: int(count * late_part)] = 10**9
    pairs = np.column_stack([np.arange(count) * 1_000_000, latency]).astype("<i8")
    return result(each=base64.b64encode(pairs.tobytes()).decode(), **changes)


async def climb(client: Client, limit: float, runs: list[Plan] | None = None, **changes: object) -> Found:
    async def run(plan: Plan) -> RunResult:
        rate = sum(plan.publishers.rate)
        if runs is not None:
            runs.append(plan)
        await trio.sleep(plan.duration_s)
        return run_of(0.5 if rate <= limit * 1.0001 else 2.0, **changes)

    return await measure_capacity(client, "b1", CapacityOptions(), lambda _: None, run)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def nothing_to_remove(monkeypatch):
    removed = []

    async def remove(_address: str, topic: str) -> None:
        removed.append(topic)

    monkeypatch.setattr(module, "_remove", remove)
    return removed


async def test_the_largest_rate_that_keeps_the_promise_is_found(autojump_clock, no_threads, nothing_to_remove):
    runs: list[Plan] = []
    found = await climb(Client(), 9_000.0, runs)
    assert found.capacity is not None
    assert 9_000 / 1.06 <= found.capacity.mcap <= 9_000
    assert (found.capacity.limited_by, found.capacity.source) == ("broker", "bench")
    assert [one.verdict for one in found.steps[:5]] == ["kept"] * 4 + ["broken"]
    assert {plan.topic for plan in runs} == set(nothing_to_remove)
    assert all(plan.topic.endswith("#ephemeral") for plan in runs)


async def test_the_traffic_is_of_the_class_asked_for(autojump_clock, no_threads):
    plans: list[Plan] = []

    async def run(plan: Plan) -> RunResult:
        plans.append(plan)
        await trio.sleep(1)
        return run_of(0.5)

    options = CapacityOptions(traffic=Class(process="periodic", batch=10, publishers=7), most=1000.0)
    found = await measure_capacity(Client(), "b1", options, lambda _: None, run)  # type: ignore[arg-type]
    assert found.capacity is not None
    assert found.capacity.limited_by == "the highest rate asked for"
    publishers = plans[0].publishers
    assert (len(publishers.ids), set(publishers.batch), set(publishers.process)) == (7, {10}, {"periodic"})
    assert sum(publishers.rate) == pytest.approx(1000)


async def test_a_step_that_the_generator_spoilt_is_taken_once_more_and_then_ends_the_climb(autojump_clock, no_threads):
    found = await climb(Client(), 1e9, valid=False, reasons=["the generator was late"])
    assert found.capacity is None
    assert [one.verdict for one in found.steps] == ["invalid", "invalid"]
    assert found.disturbed == ()


async def test_where_no_rate_was_kept_what_the_quota_took_is_told_too(autojump_clock, no_threads):
    class Throttled(Client):
        async def broker(self, name: str) -> dict:
            view = await super().broker(name)
            told = {"quota_cores": 0.1, "throttled_share": 0.9, "throttled_s": 5.0 * self.looks, "steal_share": 0.0}
            return {**view, "throttling": told}

    found = await climb(Throttled(), 0.0)
    assert found.capacity is None
    assert found.disturbed[0].startswith("throttled by a CPU quota: ")


async def test_beside_a_topic_that_comes_near_its_promise_the_climb_ends_with_what_was_kept(autojump_clock, no_threads):
    client = Client(lambda looks: [report(p99_ms=4.5 if looks > 20 else 1.0, received=500 * looks)])
    found = await climb(client, 1e9)
    assert found.capacity is not None
    assert found.capacity.limited_by == "other topics"
    assert found.steps[-1].verdict == "endangered"
    assert "cars" in found.steps[-1].why
    assert found.capacity.mcap == pytest.approx(found.steps[-2].rate + found.capacity.beside)
    assert found.capacity.beside > 0


async def test_a_topic_that_was_late_before_does_not_end_it(autojump_clock, no_threads):
    found = await climb(Client(lambda _: [report(p99_ms=9.0)]), 3_000.0)
    assert found.capacity is not None
    assert found.capacity.limited_by == "broker"


async def test_what_the_broker_says_of_its_processors_is_noted(autojump_clock, no_threads):
    class Throttled(Client):
        async def broker(self, name: str) -> dict:
            view = await super().broker(name)
            told = {"quota_cores": 1.0, "throttled_share": 0.1, "throttled_s": 5.0 + self.looks, "steal_share": 0.25}
            return {**view, "throttling": told}

    found = await climb(Throttled(), 1e9)
    assert found.capacity is not None
    quota, steal = found.capacity.disturbed
    assert quota.startswith("throttled by a CPU quota: ")
    assert steal == "steal 25.0%"


@pytest.mark.parametrize("state", [{"alive": False}, {"accepting": False}, {"draining": True}])
async def test_a_broker_that_is_not_there_to_be_measured_is_refused(state):
    with pytest.raises(Conflict, match="b1"):
        await climb(Client(**state), 1000.0)


async def test_the_scratch_topic_goes_also_when_the_command_is_cancelled(nothing_to_remove):
    async with trio.open_nursery() as nursery:
        started = trio.Event()

        async def run_until_cancelled(_plan: Plan) -> RunResult:
            started.set()
            await trio.sleep_forever()
            raise AssertionError

        options = CapacityOptions()
        nursery.start_soon(measure_capacity, Client(), "b1", options, lambda _: None, run_until_cancelled)
        await started.wait()
        nursery.cancel_scope.cancel()
    assert len(nothing_to_remove) == 1


SLO = Slo(percentile=99, latency_ms=1.0)


def test_a_run_is_judged_by_its_promise():
    assert judged(run_of(0.5), 1.0, SLO).verdict == "kept"
    assert judged(run_of(2.0), 1.0, SLO).verdict == "broken"
    assert judged(run_of(0.5, late_part=0.2), 1.0, SLO).verdict == "broken"
    assert judged(run_of(0.5, lost=1), 1.0, SLO).verdict == "broken"
    assert judged(run_of(0.5, valid=False, reasons=["late"]), 1.0, SLO).verdict == "invalid"


def test_what_is_not_clear_is_taken_by_the_sample_and_said_so():
    few = judged(run_of(0.5, count=50), 1.0, SLO)
    assert few.verdict == "kept"
    assert few.why.endswith("(by the sample)")


def test_quotas_and_steal_are_told():
    calm = Step(rate=1.0, verdict="kept", why="")
    assert disturbed([calm], 5.0, 2) == ()
    robbed = Step(rate=1.0, verdict="kept", why="", steal_s=1.0, throttled_s=0.4)
    assert disturbed([robbed, calm], 5.0, 2) == ("throttled by a CPU quota: 0.4 s of 10 s", "steal 5.0%")


async def test_the_machine_is_the_one_that_the_broker_tells_of_wherever_it_is(autojump_clock):
    told = {"cores": 64, "kernel": "7.1", "cpu": "Some CPU @ 2 GHz"}
    found = await climb(Client(tcp_address="10.1.2.3:4150", machine=told), 3_000)
    assert found.capacity is not None
    assert found.capacity.machine == Machine(cores=64, kernel="7.1", cpu="Some CPU @ 2 GHz")
    assert machine_of({"machine": None}) is None


def test_what_others_took_here_is_told_of_brokers_that_are_reached_by_loopback():
    assert [is_here(f"{host}:4150") for host in ("127.0.0.1", "[::1]", "localhost")] == [True] * 3
    assert [is_here(f"{host}:4150") for host in ("10.1.2.3", "elsewhere.example")] == [False] * 2
