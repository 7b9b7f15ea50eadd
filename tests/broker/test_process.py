"""A broker as a process: what comes out of it when it fails."""

import pytest

from broker import process
from srtm.errors import Conflict, InternalError
from tests.support.broker_service import config


def test_several_failures_at_once_come_out_as_one_refusal(tmp_path, monkeypatch):
    async def fail_twice(_config, _renewals, **_options):
        raise BaseExceptionGroup("tasks", [InternalError("first"), BaseExceptionGroup("more", [Conflict("a", 1, "b")])])

    monkeypatch.setattr(process, "serve", fail_twice)
    with pytest.raises(InternalError, match="first"):
        process.run(config(tmp_path))
