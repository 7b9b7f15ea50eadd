"""What flags of the MQTT port mean together, and how bad ones are refused."""

import pytest

from broker.options import check_arguments
from srtm.errors import BadInput


def settings(*flags):
    return check_arguments(["--name", "b", *flags]).engine


OWN_PAGES = ("localhost", "127.0.0.1", "[::1]")


def test_where_nobody_is_asked_for_a_password_only_pages_of_this_machine_may_connect(tmp_path):
    users = tmp_path / "users"
    users.write_text("eva:$7$101$c2FsdA==$aGFzaA==\n")
    assert settings().mqtt_ws_origins == OWN_PAGES
    assert settings("--mqtt-password-file", str(users)).mqtt_ws_origins is None
    assert settings("--mqtt-allow-anonymous").mqtt_ws_origins is None


def test_the_origins_that_are_given_replace_the_default():
    given = settings("--mqtt-ws-origin", "https://plant.example:8443", "--mqtt-ws-origin", "[::1]")
    assert given.mqtt_ws_origins == ("https://plant.example:8443", "[::1]")
    assert settings("--mqtt-ws-origin", "plant.example", "--mqtt-ws-origin", "*").mqtt_ws_origins is None


def test_words_have_the_defaults_of_the_engine_until_others_are_given():
    assert settings().mqtt_full_session == "drop"
    assert settings("--mqtt-full-session", "refuse").mqtt_full_session == "refuse"


@pytest.mark.parametrize(
    "origin", ["", "https://plant.example/", "https://", "ftp://plant.example", "a b", "*.example"]
)
def test_what_is_no_origin_is_refused_by_name(origin):
    with pytest.raises(BadInput) as caught:
        settings("--mqtt-ws-origin", origin)
    assert (caught.value.field, caught.value.value) == ("mqtt_ws_origin", origin)
