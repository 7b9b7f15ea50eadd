"""A broker as a process: what comes out of it when it fails."""

import pytest

from broker import process
from srtm.errors import Conflict, InternalError
from srtm.net.tokens import FromFile, Tokens
from tests.support.broker_service import config


def test_several_failures_at_once_come_out_as_one_refusal(tmp_path, monkeypatch):
    async def fail_twice(_config, _renewals, **_options):
        raise BaseExceptionGroup("tasks", [InternalError("first"), BaseExceptionGroup("more", [Conflict("a", 1, "b")])])

    monkeypatch.setattr(process, "serve", fail_twice)
    with pytest.raises(InternalError, match="first"):
        process.run(config(tmp_path))


@pytest.mark.parametrize(
    ("settings", "reads_again"),
    [
        ({}, False),
        ({"token": "t"}, False),
        ({"token": FromFile(lambda: "t")}, True),
        ({"tokens": Tokens.of_one("t")}, False),
        ({"mqtt_password_file": "/users", "mqtt_address": "127.0.0.1:0"}, True),
        ({"mqtt_acl_file": "/access", "mqtt_address": "127.0.0.1:0"}, True),
        ({"ca_file": "/authority"}, True),
    ],
)
def test_sighup_ends_a_broker_without_a_file_to_read_again(tmp_path, settings, reads_again):
    assert (process.renewals_of(config(tmp_path, **settings)) is not None) == reads_again
