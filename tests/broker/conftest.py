"""A service's engine is a recording one where a test asks for ``engines``."""

import sys
from types import SimpleNamespace

import pytest

from tests.support.broker_admin import Admin
from tests.support.fake_engine import FakeEngine


@pytest.fixture
def engines(monkeypatch):
    """Every engine that the service makes."""
    made = []

    def make(config):
        made.append(FakeEngine(config))
        return made[-1]

    monkeypatch.setitem(sys.modules, "srtm._native", SimpleNamespace(Engine=make))
    return made


@pytest.fixture
def admin():
    return Admin()
