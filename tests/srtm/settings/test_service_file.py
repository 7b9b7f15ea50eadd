"""``srtm.toml``: what counts before what, and how mistakes are named."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.main import get_command

from srtm.cli import main
from srtm.commands.app import app
from srtm.errors import BadInput
from srtm.operations.configs import known_settings
from srtm.settings.service_file import SERVICES, Setting, by_key, with_file

SETTINGS = by_key(
    [
        Setting.of_flags(["--mcap"], "value"),
        Setting.of_flags(["--distributor"], "list"),
        Setting.of_flags(["--realtime"], "switch"),
        Setting.of_flags(["--token"], "value"),
        Setting.of_flags(["--token-file"], "value"),
        Setting.of_flags(["--fitting-moves", "--relief-moves"], "value"),
        Setting.of_flags(["-h", "--help"], "switch"),
    ]
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "srtm.toml"


def words(file: Path, text: str, *given: str, **environ: str) -> list[str]:
    file.write_text(text)
    return with_file("broker", SETTINGS, [*given, "--config", str(file)], environ)


def test_without_file_and_environment_the_flags_stay_as_they_are() -> None:
    assert with_file("broker", SETTINGS, ["--mcap", "5"], {"SRTM_BROKERS": "7"}) == ["--mcap", "5"]


def test_settings_of_the_section_stand_before_the_flags(file: Path) -> None:
    text = '[broker]\nmcap = 1_300\nrealtime = true\ndistributor = ["http://a:1", "http://b:1"]\n[limit]\nnone = 1\n'
    file.write_text(text)
    expected = ["--mcap=1300", "--realtime", "--distributor=http://a:1", "--distributor=http://b:1", "--name", "b1"]
    assert with_file("broker", SETTINGS, ["--name", "b1"], {"SRTM_CONFIG": str(file)}) == expected
    assert words(file, text, "--name", "b1") == expected


def test_a_flag_counts_before_the_environment_and_this_before_the_file(file: Path) -> None:
    text = '[broker]\nmcap = 1\ndistributor = "http://file:1"\nfitting_moves = 3\nrealtime = false\n'
    environ = {"SRTM_BROKER_MCAP": "2", "SRTM_BROKER_REALTIME": "true"}
    assert words(file, text, **environ) == [
        "--distributor=http://file:1",
        "--fitting-moves=3",
        "--mcap=2",
        "--realtime",
    ]
    assert words(file, text, "--mcap=3", "--distributor", "http://flag:1", "--relief-moves=4", **environ) == [
        "--realtime",
        "--mcap=3",
        "--distributor",
        "http://flag:1",
        "--relief-moves=4",
    ]
    assert words(file, text, SRTM_DISTRIBUTOR="http://environment:1") == ["--mcap=1", "--fitting-moves=3"]


def test_a_token_replaces_the_token_file_of_what_counts_less(file: Path) -> None:
    text = '[broker]\ntoken_file = "/etc/srtm/token"\n'
    assert words(file, text) == ["--token-file=/etc/srtm/token"]
    assert words(file, text, "--token", "flag") == ["--token", "flag"]
    assert words(file, text, SRTM_BROKER_TOKEN="secret") == ["--token=secret"]
    assert words(file, text, SRTM_TOKEN="secret") == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[broker]\nmcpa = 1", "broker.mcpa: no such setting; did you mean mcap?"),
        ('[broker]\ntoken-file = "f"', "broker.token-file: no such setting; did you mean token_file?"),
        ("[broker]\nzzz = 1", "broker.zzz: no such setting; there are distributor, fitting_moves, mcap, realtime"),
        ("[brokers]\nmcap = 1", "brokers: no such section; did you mean broker?"),
        ("broker = 3", "broker: 3: must be a section: \\[broker\\]"),
        ("[broker]\nmcap = true", "broker.mcap: True: must be text or a number"),
        ("[broker]\nmcap = [1]", "must be text or a number"),
        ('[broker]\nrealtime = "yes"', "broker.realtime: 'yes': must be true or false"),
        ("[broker]\ndistributor = [[]]", "must be text or a list of texts"),
        ("[broker", "config: .*srtm.toml': must be TOML: "),
        ("[broker]\nhelp = true", "broker.help: no such setting"),
    ],
)
def test_mistakes_are_named_with_file_section_and_key(file: Path, text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        words(file, text)


def test_a_bad_value_of_the_environment_is_named_by_its_variable(file: Path) -> None:
    with pytest.raises(BadInput, match=r"\$SRTM_BROKER_REALTIME: 'yes': must be true or false"):
        words(file, "", SRTM_BROKER_REALTIME="yes")
    with pytest.raises(BadInput, match="config: must be followed by a file"):
        with_file("broker", SETTINGS, ["--config"], {})
    with pytest.raises(BadInput, match=r"config: '/no/file': must be a file that can be read"):
        with_file("broker", SETTINGS, ["--config=/no/file"], {})


def test_help_is_answered_whatever_the_file_says() -> None:
    assert with_file("broker", SETTINGS, ["--config=/no/file", "--help"], {}) == ["--config=/no/file", "--help"]


GOOD = """
[broker]
mcap = 20000
distributor = ["http://10.0.0.1:4190"]
[distributor]
http_address = "10.0.0.1:4190"
fitting_grace_s = 20
adopt_brokers = false
relief = "off"
[adaptor]
distributor = "http://10.0.0.1:4190"
[limit]
max_subjects = 5000
[up]
ports = "4150-4170"
"""


def test_a_good_file_is_checked_and_nothing_starts(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(GOOD)
    assert main(["config", "check", str(file)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "broker: 2 settings, all right",
        "distributor: 4 settings, all right",
        "adaptor: 1 setting, all right",
        "limit: 1 setting, all right",
        "up: 1 setting, all right",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[broker]\nmcap = -1", "broker.mcap: -1.0: must be a rate from 0"),
        ('[broker]\ntls_required = "maybe"', "argument --tls-required: invalid choice"),
        ("[distributor]\nfitting_grace_s = 0", "distributor.fitting_grace_s: 0.0: must be 1 to 3600 seconds"),
        ('[distributor]\nfitting = "perhaps"', "distributor.fitting: "),
        ('[distributor]\ntokens = "/no/file"', "distributor.tokens: '/no/file': must be a file that can be read"),
        ('[distributor]\nstore = "mysql://x"', "distributor.store: 'mysql://x': must be sqlite:///PATH or postgresql"),
        ('[distributor]\nhttp_address = "x"', "distributor.http_address: 'x': must be HOST:PORT"),
        ('[distributor]\nscaler_ca_file = "/no/file"', "distributor.scaler_ca_file: '/no/file': must be a file"),
        ('[limit]\ngrpc_address = "x"', "limit.grpc_address: 'x': must be HOST:PORT"),
        ('[limit]\ncontracts = "/no/file"', "limit.contracts: '/no/file': must be a file that can be read"),
        ('[limit]\ncontracts = "{file}"', "limit.contracts: '{file}': limit: no such table; write contracts without"),
        ('[limit]\nplans = "/no/file"', "limit.plans: '/no/file': must be a file that can be read"),
        ('[limit]\ncluster_key_file = "/no/file"', "limit.cluster_key_file: '/no/file': must be a file"),
        ('[limit]\ntls_cert = "{file}"\ntls_key = "{file}"', "limit.tls_cert: '{file}': must be a certificate in PEM"),
        ('[adaptor]\nca_file = "/no/file"', "adaptor.ca_file: '/no/file': must be a file that can be read"),
        ('[broker]\ntls_root_ca_file = "/no/file"', "broker.tls_root_ca_file: '/no/file': must be a file"),
        ('[broker]\ndata_path = "/no/directory"', "broker.data_path: '/no/directory': must be a directory that exists"),
        ("[limit]\nmax_subjcts = 5", "limit.max_subjcts: no such setting; did you mean max_subjects?"),
        ('[up]\nports = "4150"', "up.ports: '4150': must be FIRST-LAST"),
        ('[adaptor]\ntokens = "f"', "adaptor.tokens: no such setting; did you mean token?"),
    ],
)
def test_a_bad_file_is_refused_with_the_setting(
    file: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    file.write_text(text.replace("{file}", str(file)))
    assert main(["config", "check", str(file)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"srtm: {file}: ")
    assert said.replace("{file}", str(file)) in error


def test_no_file_that_a_setting_names_is_passed_over(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of each service: what its help calls a FILE is read."""
    for service in SERVICES:
        known = known_settings(get_command(app), service)
        for key in (key for key, setting in known.items() if setting.value.startswith("FILE")):
            file.write_text(f'[{service}]\n{key} = "/no/file"')
            assert main(["config", "check", str(file)]) == 2, (service, key)
            assert f"{service}.{key}: '/no/file': " in capsys.readouterr().err


def test_a_service_starts_with_the_settings_of_its_file(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("[distributor]\nfitting_moves = 0\n[limit]\nmax_subjects = 1\n[broker]\nmcap = -1\n")
    assert main(["distributor", "--config", str(file)]) == 2
    assert "fitting_moves: 0: must be" in capsys.readouterr().err
    assert main(["limit", "serve", "--config", str(file)]) == 2
    assert "max_subjects: 1: must be" in capsys.readouterr().err
    assert main(["broker", "--name", "b1", f"--config={file}"]) == 2
    assert "mcap: -1.0: must be" in capsys.readouterr().err
