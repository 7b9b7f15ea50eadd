"""The files of TLS and the settings around them: what is read, and how what cannot be used is refused by name."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from broker import startup as starting
from broker.config import BrokerConfig, EngineConfig
from broker.options import _parser, parse_config
from broker.runtime import tls_files as tls
from broker.sync.state_file import SyncState
from srtm._native import Engine
from srtm.errors import BadInput

CERTIFICATES = Path(__file__).resolve().parents[2] / "certificates"
SERVER = {"tls_cert": str(CERTIFICATES / "server.pem"), "tls_key": str(CERTIFICATES / "server.key")}


def make_engine(config: BrokerConfig) -> None:
    """The real one, not started."""
    settings = tls.with_files(starting.engine_settings(config, SyncState()), config)
    starting.make_engine(settings, config)


def test_the_engine_gets_the_contents_of_the_files() -> None:
    config = BrokerConfig(name="b", **SERVER, tls_root_ca_file=str(CERTIFICATES / "authority.pem"))
    settings = tls.with_files(EngineConfig(), config)
    assert settings.tls_cert_pem.startswith("-----BEGIN CERTIFICATE-----")
    assert settings.tls_key_pem.startswith("-----BEGIN PRIVATE KEY-----")
    assert settings.tls_root_ca_pem.startswith("-----BEGIN CERTIFICATE-----")
    make_engine(config)


def test_an_expired_self_signed_certificate_is_fine_with_either_form_of_its_key() -> None:
    for key in ("server.key", "server-pkcs1.key"):
        make_engine(BrokerConfig(name="b", tls_cert=SERVER["tls_cert"], tls_key=str(CERTIFICATES / key)))


@pytest.mark.parametrize(
    ("changes", "field", "rule"),
    [
        ({"tls_cert": "/nowhere/cert.pem"}, "tls_cert", "must be a file that can be read"),
        ({"tls_cert": __file__}, "tls_cert", "must hold a certificate in PEM"),
        ({"tls_key": SERVER["tls_cert"]}, "tls_key", "must hold a private key in PEM"),
        ({"tls_key": str(CERTIFICATES / "client.key")}, "tls_key", "must be the key of the certificate"),
        ({"tls_root_ca_file": __file__}, "tls_root_ca_file", "must hold a certificate in PEM"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(changes: dict[str, str], field: str, rule: str) -> None:
    config = BrokerConfig(name="b", **(SERVER | changes))
    with pytest.raises(BadInput) as refused:
        make_engine(config)
    assert (refused.value.field, refused.value.value) == (field, getattr(config, field))
    assert rule in refused.value.rule


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cert").write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match=r"tls_cert.*must be PEM"):
        make_engine(BrokerConfig(name="b", **(SERVER | {"tls_cert": str(tmp_path / "cert")})))


@pytest.mark.parametrize(
    ("options", "engine", "field"),
    [
        ({"tls_cert": "c"}, {}, "tls_key"),
        ({"tls_key": "k"}, {}, "tls_cert"),
        ({}, {"tls_required": "true"}, "tls_required"),
        (SERVER, {"tls_required": "maybe"}, "tls_required"),
        (SERVER, {"tls_client_auth_policy": "ask"}, "tls_client_auth_policy"),
        (SERVER, {"tls_client_auth_policy": "require-verify"}, "tls_root_ca_file"),
        (SERVER, {"tls_min_version": "ssl3.0"}, "tls_min_version"),
        ({}, {"max_deflate_level": 0}, "max_deflate_level"),
        ({}, {"max_deflate_level": 10}, "max_deflate_level"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(
    options: dict[str, str], engine: dict[str, object], field: str
) -> None:
    with pytest.raises(BadInput) as refused:
        BrokerConfig(name="b", **options, engine=msgspec.convert(engine, EngineConfig))
    assert refused.value.field == field


def test_the_oldest_version_is_never_below_1_2() -> None:
    versions = {given: tls.oldest_version(EngineConfig(tls_min_version=given)) for given in ("tls1.0", "tls1.3")}
    assert versions == {"tls1.0": "1.2", "tls1.3": "1.3"}


def test_a_policy_on_the_command_line_requires_tls_unless_it_says_otherwise() -> None:
    files = ["--name=b", f"--tls-cert={SERVER['tls_cert']}", f"--tls-key={SERVER['tls_key']}"]
    given = [*files, "--tls-client-auth-policy=require"]
    assert parse_config(_parser().parse_args(given)).engine.tls_required == "true"
    assert parse_config(_parser().parse_args([*given, "--tls-required=false"])).engine.tls_required == "false"
    assert parse_config(_parser().parse_args(files)).engine.tls_required == "false"


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[tuple[BrokerConfig, Engine, int]]:
    """A broker's settings, whose files may be changed, and its engine, which serves HTTPS at the port."""
    names = {"tls_cert": "certificate.pem", "tls_key": "key.pem"}
    for option, name in names.items():
        (tmp_path / name).write_bytes(Path(SERVER[option]).read_bytes())
    config = BrokerConfig(
        name="b", https_address="127.0.0.1:0", **{option: str(tmp_path / name) for option, name in names.items()}
    )
    settings = tls.with_files(starting.engine_settings(config, SyncState()), config)
    settings = msgspec.structs.replace(settings, tcp_address="", http_address="", data_path="")
    engine = starting.make_engine(settings, config)
    port = starting.start_engine(engine, settings).https
    engine.open_http()
    yield config, engine, port
    engine.stop(1_000)


def certificate_of(port: int) -> str:
    """What a new connection is shown."""
    return ssl.get_server_certificate(("127.0.0.1", port), timeout=5).strip()


def test_renewed_files_are_shown_to_new_connections_and_open_ones_go_on(
    serving: tuple[BrokerConfig, Engine, int],
) -> None:
    config, engine, port = serving
    first = Path(SERVER["tls_cert"]).read_text().strip()
    assert certificate_of(port) == first
    context = ssl.create_default_context(cafile=SERVER["tls_cert"])
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    opened = http.client.HTTPSConnection("127.0.0.1", port, timeout=5, context=context)
    opened.connect()
    for option, file in ((config.tls_cert, "distributor.pem"), (config.tls_key, "distributor.key")):
        Path(option).write_bytes((CERTIFICATES / file).read_bytes())
    tls.renew(engine, config)
    assert certificate_of(port) == (CERTIFICATES / "distributor.pem").read_text().strip() != first
    opened.request("GET", "/ping")
    assert opened.getresponse().read() == b"OK"
    opened.close()


@pytest.mark.parametrize(
    ("option", "content", "rule"),
    [
        ("tls_cert", "nonsense", "must hold a certificate in PEM"),
        ("tls_cert", "", "must be PEM, and is empty"),
        ("tls_key", "", "must be PEM, and is empty"),
        ("tls_key", (CERTIFICATES / "client.key").read_text(), "must be the key of the certificate"),
    ],
)
def test_bad_files_are_refused_by_name_and_leave_the_old_in_force(
    serving: tuple[BrokerConfig, Engine, int], option: str, content: str, rule: str
) -> None:
    config, engine, port = serving
    file = Path(getattr(config, option))
    file.write_text(content)
    with pytest.raises(BadInput, match=rule) as refused:
        tls.renew(engine, config)
    assert (refused.value.field, refused.value.value) == (option, str(file))
    assert certificate_of(port) == Path(SERVER["tls_cert"]).read_text().strip()
