"""Scalers: the operator's command, local processes, nobody."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import trio
import trio.testing

from distributor.config import DistributorConfig
from distributor.fitting.events import Scaler
from distributor.jobs.scaling import CommandScaler, NoScaler, ProcessScaler, scaling_of
from srtm.client.distributor import DistributorClient
from srtm.cluster.supervisor import cluster, keep_running
from srtm.errors import BadInput, Unavailable
from srtm.log import Log

QUIET = Log("test", lambda _line: None)


RUNS_ON = -1


@dataclass
class Members:
    mcap: float = 0.0
    draining: set[str] = field(default_factory=set)

    def typical_mcap(self) -> float:
        return self.mcap

    def is_draining(self, broker: str) -> bool:
        return broker in self.draining


class Played:
    """A child of which a test says how its process ends: ``ends``, one start after the other; then it runs on."""

    def __init__(self, name: str, arguments: Sequence[str], *ends: int | OSError) -> None:
        self.name, self.arguments, self.log = name, list(arguments), Path(f"{name}.log")
        self.ended: str | None = None
        self.stays_ended = False
        self.starts = 0
        self._ends = ends

    def start(self) -> int:
        self.starts += 1
        end = self._ends[self.starts - 1] if self.starts <= len(self._ends) else RUNS_ON
        if isinstance(end, OSError):
            raise end
        return end

    async def run(self, end: int) -> None:
        if end == RUNS_ON:
            await trio.sleep_forever()
        self.ended, self.stays_ended = f"ended with status {end}", end == 0


async def run_for_a_minute(scaler: ProcessScaler, more: int) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scaler.run)
        await trio.testing.wait_all_tasks_blocked()
        await scaler.ask(more)
        await trio.sleep(60)
        nursery.cancel_scope.cancel()


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> tuple[list[Played], list[int | OSError]]:
    """Children that were made, and how each one's processes end."""
    made: list[Played] = []
    ends: list[int | OSError] = []

    def child(name: str, arguments: Sequence[str], *_: object) -> Played:
        made.append(Played(name, arguments, *ends))
        return made[-1]

    monkeypatch.setattr("distributor.jobs.scaling.Child", child)
    return made, ends


async def test_the_command_is_told_how_many_brokers_are_wanted(tmp_path):
    await CommandScaler(f"echo $SRTM_BROKERS > {tmp_path}/asked").ask(3)
    assert (tmp_path / "asked").read_text() == "3\n"


async def test_a_command_that_fails_brings_nothing():
    with pytest.raises(Unavailable, match="status 7"):
        await CommandScaler("exit 7").ask(1)


async def test_a_command_that_hangs_is_ended_and_brings_nothing(autojump_clock):
    with pytest.raises(Unavailable, match="did not end within 120 s"):
        await CommandScaler("exec sleep 1000").ask(1)


async def test_with_a_command_that_hangs_ends_what_it_has_started(tmp_path, autojump_clock):
    held = tmp_path / "held"  # by every process of the command, for writing
    os.mkfifo(held)
    reader = os.open(held, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(Unavailable, match="did not end within 120 s"):
            await CommandScaler(f"exec > {held}; sleep 1000 & sleep 1000").ask(1)
        os.set_blocking(reader, True)
        assert await trio.to_thread.run_sync(os.read, reader, 1) == b""
    finally:
        os.close(reader)


async def test_without_a_scaler_nothing_comes():
    with pytest.raises(Unavailable, match="--scaler"):
        await NoScaler().ask(1)


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({}, NoScaler),
        ({"scaler": Scaler.PROCESS}, ProcessScaler),
        ({"scaler": Scaler.COMMAND, "scaler_command": "true"}, CommandScaler),
    ],
)
def test_the_scaler_is_the_one_that_is_configured(settings, kind):
    made = scaling_of(DistributorConfig(**settings), "http://127.0.0.1:1", Members(), QUIET)
    assert isinstance(made, kind)


@pytest.mark.parametrize("settings", [{"scaler": Scaler.COMMAND}, {"scaler_command": "true"}])
def test_a_command_goes_with_the_scaler_of_that_name_only(settings):
    with pytest.raises(BadInput, match="scaler_command"):
        DistributorConfig(**settings)


async def test_a_local_process_is_started_with_the_options_that_are_configured(tmp_path, played):
    made, _ = played
    config = DistributorConfig(
        scaler=Scaler.PROCESS, scaler_data=tmp_path, scaler_options=("--token-file", "t", "--ca-file", "c")
    )
    await scaling_of(config, "https://127.0.0.1:1", Members(), QUIET).ask(1)
    assert made[0].arguments[-4:] == ["--token-file", "t", "--ca-file", "c"]


async def test_brokers_that_are_asked_for_at_once_have_addresses_of_their_own(tmp_path, played):
    made, _ = played
    await ProcessScaler(tmp_path, "http://127.0.0.1:1", Members(), QUIET).ask(20)
    found = [
        one.arguments[one.arguments.index(name) + 1] for one in made for name in ("--tcp-address", "--http-address")
    ]
    assert len(set(found)) == 40


async def test_a_process_that_cannot_be_started_is_tried_again_and_harms_nobody(tmp_path, played, autojump_clock):
    made, ends = played
    ends[:] = [OSError(12, "Cannot allocate memory"), 1]
    await run_for_a_minute(ProcessScaler(tmp_path, "http://127.0.0.1:1", Members(), QUIET), 2)
    assert [one.starts for one in made] == [3, 3]


async def test_what_ended_when_it_had_run_for_long_is_started_again_at_once(autojump_clock):
    child, starts_s = Played("b", (), *[1] * 8), []

    async def run(_end: int) -> None:
        await trio.sleep(60 if child.starts == 7 else 0)

    async def goes_on() -> bool:
        return child.starts < 8

    child.run = run
    await keep_running(child, lambda: starts_s.append(trio.current_time()), goes_on)
    pauses_s = np.diff(starts_s)
    assert pauses_s[5] > 1
    assert pauses_s[6] - 60 < 0.5


@pytest.mark.parametrize(("draining", "names"), [({"scaled-1"}, []), (set(), ["scaled-1"])])
async def test_a_broker_that_was_drained_is_not_started_again_by_the_next_leader(
    tmp_path, played, autojump_clock, draining, names
):
    """One that somebody stopped is."""
    made, ends = played
    ends[:] = [0]
    await run_for_a_minute(ProcessScaler(tmp_path, "http://127.0.0.1:1", Members(draining=draining), QUIET), 1)
    assert [one.starts for one in made] == [1]
    made.clear()
    await run_for_a_minute(ProcessScaler(tmp_path, "http://127.0.0.1:1", Members(), QUIET), 1)
    assert [one.name for one in made] == [*names, "scaled-2"]


@pytest.mark.slow
async def test_local_processes_join_the_cluster_and_come_back_with_the_distributor(tmp_path: Path) -> None:
    """Under tokens: nobody lets a broker in that shows none."""
    with trio.fail_after(60):
        async with (
            cluster(brokers=1, mcap=500, data=tmp_path / "data", tokens=True) as running,
            running.client(30.0) as client,
        ):
            shown = ("--token-file", str(tmp_path / "data" / "scaled.token"))
            for asked in (1, 0):
                scaler = ProcessScaler(tmp_path / "scaled", running.distributor, Members(500.0), QUIET, shown)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(scaler.run)
                    if asked:
                        await scaler.ask(asked)
                    await _until_accepting(client, "scaled-1")
                    nursery.cancel_scope.cancel()
            assert (await client.broker("scaled-1"))["mcap"] == 500


async def _until_accepting(client: DistributorClient, name: str) -> None:
    before = {one["name"]: one["incarnation"] for one in await client.brokers()}
    while True:
        now = {one["name"]: one for one in await client.brokers() if one["alive"]}
        if name in now and now[name]["incarnation"] != before.get(name):
            return
        await trio.sleep(0.1)
