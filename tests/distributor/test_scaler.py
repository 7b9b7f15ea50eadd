"""Scalers: the operator's command, local processes, nobody."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from distributor.config import DistributorConfig
from distributor.fitting_events import Scaler
from distributor.scaler import CommandScaler, NoScaler, ProcessScaler, scaling_of
from srtm.distributor_client import DistributorClient
from srtm.errors import BadInput, Unavailable
from srtm.log import Log
from srtm.supervisor import cluster

QUIET = Log("test", lambda _line: None)


async def test_the_command_is_told_how_many_brokers_are_wanted(tmp_path):
    await CommandScaler(f"echo $SRTM_BROKERS > {tmp_path}/asked").ask(3)
    assert (tmp_path / "asked").read_text() == "3\n"


async def test_a_command_that_fails_brings_nothing():
    with pytest.raises(Unavailable, match="status 7"):
        await CommandScaler("exit 7").ask(1)


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
    made = scaling_of(DistributorConfig(**settings), "http://127.0.0.1:1", lambda: 0.0, QUIET)
    assert isinstance(made, kind)


@pytest.mark.parametrize("settings", [{"scaler": Scaler.COMMAND}, {"scaler_command": "true"}])
def test_a_command_goes_with_the_scaler_of_that_name_only(settings):
    with pytest.raises(BadInput, match="scaler_command"):
        DistributorConfig(**settings)


async def test_a_local_process_is_started_with_the_options_that_are_configured(tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr("distributor.scaler.Child", lambda name, arguments, *_: started.append(arguments))
    config = DistributorConfig(
        scaler=Scaler.PROCESS, scaler_data=tmp_path, scaler_options=("--token-file", "t", "--ca-file", "c")
    )
    await scaling_of(config, "https://127.0.0.1:1", lambda: 0.0, QUIET).ask(1)
    assert started[0][-4:] == ["--token-file", "t", "--ca-file", "c"]


@pytest.mark.slow
async def test_local_processes_join_the_cluster_and_come_back_with_the_distributor(tmp_path: Path) -> None:
    """Under tokens: nobody lets a broker in that shows none."""
    with trio.fail_after(60):
        async with (
            cluster(brokers=1, mcap=500, data=tmp_path / "data", tokens=True) as running,
            running.client(30.0) as client,
        ):
            shown = ("--token-file", str(tmp_path / "data" / "broker.token"))
            for asked in (1, 0):
                scaler = ProcessScaler(tmp_path / "scaled", running.distributor, lambda: 500.0, QUIET, shown)
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
