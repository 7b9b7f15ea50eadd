"""The command asks a played distributor where a test asks for ``distributor``; ``network`` is one of played brokers,
``assignments`` say where in it a publisher belongs."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import httpx
import pytest

from srtm.client.distributor import DistributorClient
from tests.support.played_distributor import TOPIC, Distributor
from tests.support.publishing import Assignments
from tests.support.scripted_broker import Network


@pytest.fixture
def distributor(monkeypatch: pytest.MonkeyPatch) -> Distributor:
    played = Distributor()
    client = partial(DistributorClient, transport=httpx.MockTransport(played.answer))
    monkeypatch.setattr("srtm.console.distributor_call.DistributorClient", client)
    monkeypatch.delenv("SRTM_DISTRIBUTOR", raising=False)
    monkeypatch.delenv("SRTM_TOKEN", raising=False)
    return played


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
def assignments() -> Assignments:
    return Assignments()


@pytest.fixture
def topic_file(tmp_path: Path) -> Path:
    (tmp_path / "ids.csv").write_text("id,rate,correlation_group\na,90,\n")
    file = tmp_path / "roads.toml"
    file.write_text(
        TOPIC + '[[publishers]]\ncsv = "ids.csv"\nprocess = "periodic"\n[[publishers]]\ncount = 2\nrate = 5\n'
    )
    return file
