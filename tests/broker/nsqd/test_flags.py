"""nsqd's command line and file as they are read: what counts, in which order, and what is refused in which words."""

from __future__ import annotations

import zlib
from hashlib import md5
from pathlib import Path

import pytest

from broker import nsqd_main as nsqd
from broker.config import BrokerConfig
from broker.nsqd.flags import broker_config, parse_file, parse_flags, usage
from broker.nsqd.options import BY_KEY, TABLE, from_config
from broker.startup import engine_settings
from broker.sync.state_file import SyncState
from srtm.errors import BadInput


def config_of(*arguments: str, file: str = "") -> BrokerConfig:
    return broker_config(parse_flags(arguments).options, parse_file("f.toml", file)[0], "host.example")


def test_without_flags_everything_is_nsqds_default() -> None:
    config = config_of()
    assert (config.tcp_address, config.http_address) == ("0.0.0.0:4150", "0.0.0.0:4151")
    assert (config.broadcast_address, config.data_path, config.log_name) == ("host.example", ".", "[nsqd] ")
    assert config.node_id == zlib.crc32(md5(b"host.example").digest()) % 1024
    assert config.engine == BrokerConfig(name="n").engine


@pytest.mark.parametrize(
    "words",
    [
        ["-tcp-address", "127.0.0.1:9"],
        ["--tcp-address", "127.0.0.1:9"],
        ["-tcp-address=127.0.0.1:9"],
        ["--tcp-address=127.0.0.1:9"],
        ["--tcp-address", "127.0.0.1:8", "-tcp-address=127.0.0.1:9"],
        ["--verbose", "-worker-id=false", "--tcp-address", "127.0.0.1:9", "stop", "--nothing"],
        ["--tcp-address", "127.0.0.1:9", "--", "--nothing"],
        ["--tcp-address", "127.0.0.1:9", "-", "--nothing"],
    ],
)
def test_flags_are_written_as_gos_are(words: list[str]) -> None:
    assert config_of(*words).tcp_address == "127.0.0.1:9"


def test_a_word_after_a_flag_is_its_value_even_if_it_looks_like_a_flag() -> None:
    assert parse_flags(["--data-path", "--snappy"]).options == {"data_path": "--snappy"}


@pytest.mark.parametrize(
    "word", ["--snappy", "--snappy=1", "-snappy=t", "--snappy=T", "--snappy=TRUE", "--snappy=True"]
)
def test_a_switch_is_on_with_or_without_a_value(word: str) -> None:
    assert parse_flags([word, "false"]).options == {"snappy": True}


@pytest.mark.parametrize(
    ("word", "meant"), [("", "true"), ("=true", "true"), ("=0", "false"), ("=TCP-HTTPS", "tcp-https")]
)
def test_tls_required_is_a_switch_with_a_third_value(word: str, meant: str) -> None:
    assert parse_flags([f"-tls-required{word}"]).options == {"tls_required": meant}


def test_lists_are_repeated_and_percentiles_also_take_commas() -> None:
    given = parse_flags(["--lookupd-tcp-address=a:1", "-lookupd-tcp-address", "b:2"]).options
    assert given == {"nsqlookupd_tcp_addresses": ("a:1", "b:2")}
    shares = ["--e2e-processing-latency-percentile=0.5,1.0", "--e2e-processing-latency-percentile=0.99"]
    assert config_of(*shares).engine.e2e_percentiles == (1.0, 0.99, 0.5)


@pytest.mark.parametrize(
    ("word", "meant"), [("0x10", 16), ("010", 8), ("0o17", 15), ("0b11", 3), ("1_000", 1000), ("+7", 7)]
)
def test_a_number_is_written_as_in_go(word: str, meant: int) -> None:
    assert config_of(f"--max-rdy-count={word}").engine.max_rdy_count == meant


def test_help_is_given_whatever_comes_behind_it() -> None:
    assert parse_flags(["--snappy", "--help", "--frobnicate"]).help
    assert not parse_flags(["--help=false"]).help


def test_log_lines_may_be_objects() -> None:
    assert [config_of(*words).log_format for words in ((), ("-log-format=json",))] == ["text", "json"]


def test_no_least_version_of_tls_is_the_default_one() -> None:
    assert config_of("--tls-min-version=").engine.tls_min_version == "tls1.0"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--mem-queue"], "flag: '--mem-queue': is not one of nsqd's"),
        (["---snappy"], "flag: '---snappy': must be -NAME or --NAME, with =VALUE or VALUE after it"),
        (["-=5"], "flag: '-=5': must be -NAME or --NAME, with =VALUE or VALUE after it"),
        (["--data-path"], "--data-path: '': needs a value (text)"),
        (["--max-rdy-count=many"], "--max-rdy-count: 'many': must be a whole number"),
        (["--max-rdy-count=9223372036854775808"], "must be a whole number of at most 64 bits"),
        (["--max-rdy-count=0x"], "--max-rdy-count: '0x': must be a whole number"),
        (["--max-rdy-count=089"], "--max-rdy-count: '089': must be a whole number"),
        (["--max-rdy-count", "٣"], "--max-rdy-count: '٣': must be a whole number"),
        (["--snappy=yes"], "--snappy: 'yes': must be true or false (also t, f, 1, 0)"),
        (["--tls-required=maybe"], "--tls-required: 'maybe': must be true, false or tcp-https"),
        (["--tls-min-version=ssl3"], "--tls-min-version: 'ssl3': must be one of tls1.0, tls1.1, tls1.2, tls1.3"),
        (["--log-level=loud"], "--log-level: 'loud': must be one of debug, info, warn, error, fatal"),
        (["--log-format=xml"], "--log-format: 'xml': must be one of text, json"),
        (["--sync-timeout=2"], "--sync-timeout: '2': must be a duration with units, such as 250ms, 2s or 1h30m"),
        (["--e2e-processing-latency-percentile=a"], "must be numbers above 0, up to 1, with commas between them"),
    ],
)
def test_a_flag_that_cannot_be_read_is_refused_by_name(words: list[str], message: str) -> None:
    with pytest.raises(BadInput) as refused:
        parse_flags(words)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--node-id=1024"], "--node-id: 1024: must be from 0 to 1023"),
        (["--max-deflate-level=0"], "--max-deflate-level: 0: must be from 1 to 9"),
        (["--max-rdy-count=-1"], "--max-rdy-count: -1: must be from 0 to 4294967295"),
        (["--msg-timeout=-1s"], "--msg-timeout: '-1s': must be a duration of 1ms or more"),
        (["--e2e-processing-latency-percentile=1.5"], "--e2e-processing-latency-percentile: 1.5: must be above 0"),
        (["--enable-experiment=warp"], "enable_experiment: 'warp': must be one of topology-aware-consumption"),
        (["--tcp-address=4150"], "tcp_address: '4150': must be HOST:PORT"),
        (["--statsd-address=:8125"], "statsd_address: ':8125': must be HOST:PORT, with a host"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(words: list[str], message: str) -> None:
    with pytest.raises(BadInput) as refused:
        config_of(*words)
    assert message in str(refused.value)


def test_a_flag_counts_more_than_the_file_and_the_file_more_than_the_default() -> None:
    file = 'max_rdy_count = 7\nmsg_timeout = "2s"\nmax_msg_timeout = 9000\nnsqlookupd_tcp_addresses = ["a:1"]\nid = 5\n'
    config = config_of("--max-rdy-count=8", file=file)
    assert (config.engine.max_rdy_count, config.engine.msg_timeout_ms) == (8, 2000)
    assert config.engine.max_msg_timeout_ms == 9000  # a bare number in the file: milliseconds
    assert (config.lookupd_tcp_addresses, config.node_id) == (("a:1",), 5)


def test_the_file_takes_what_nsqds_own_example_writes() -> None:
    file = (
        'verbose = false\nlog_level = "info"\nsnappy = true\ndeflate = "true"\nmax_rdy_count = "2500"\n'
        'tls_required = false\ntls_min_version = "tls1.0"\ne2e_processing_latency_percentiles = []\n'
        'auth_http_addresses = []\nstatsd_interval = "60s"\nsync_timeout = "2s"\ndata_path = "/tmp"\n'
    )
    options, strange = parse_file("nsqd.cfg", file)
    assert strange == []
    assert (options["snappy"], options["deflate"], options["max_rdy_count"]) == (True, True, 2500)
    assert (options["tls_required"], options["auth_http_addresses"]) == ("false", ())


def test_a_number_may_stand_for_a_switch_in_the_file() -> None:
    assert parse_file("f", "snappy = 0\ndeflate = 1\n")[0] == {"snappy": False, "deflate": True}


def test_keys_of_the_file_that_are_none_are_told() -> None:
    assert parse_file("f", "max_rdy = 5\nmax_rdy_count = 5\n") == ({"max_rdy_count": 5}, ["max_rdy"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_rdy_count = ", "config: 'f': must be TOML"),
        ("max_rdy_count = 1.5", "f: max_rdy_count: 1.5: must be a whole number"),
        ("max_rdy_count = true", "f: max_rdy_count: True: must be a whole number"),
        ("snappy = 1.5", "f: snappy: 1.5: must be true or false"),
        ("data_path = 5", "f: data_path: 5: must be text"),
        ("nsqlookupd_tcp_addresses = [5]", "f: nsqlookupd_tcp_addresses: [5]: must be text"),
        ('msg_timeout = "soon"', "f: msg_timeout: 'soon': must be a duration"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_by_key(text: str, message: str) -> None:
    with pytest.raises(BadInput) as refused:
        parse_file("f", text)
    assert message in str(refused.value)


def test_a_client_policy_without_a_requirement_requires_tls() -> None:
    flags = parse_flags(["--tls-client-auth-policy=require"]).options
    with pytest.raises(BadInput, match="tls_required"):  # and without a certificate there is none
        broker_config(flags, {}, "h")


def test_where_the_broker_stands_and_the_experiment_reach_the_engine() -> None:
    words = ["--topology-region=r", "-topology-zone", "z", "--enable-experiment=topology-aware-consumption"]
    settings = engine_settings(config_of(*words), SyncState())
    assert (settings.topology_region, settings.topology_zone, settings.topology_aware) == ("r", "z", True)
    assert not engine_settings(config_of(), SyncState()).topology_aware


def test_what_is_shown_is_what_was_given() -> None:
    words = ["--msg-timeout=1500ms", "--queue-scan-selection-count=9", "--statsd-prefix=x", "--broadcast-tcp-port=9"]
    shown = from_config(config_of(*words))
    assert (shown["msg_timeout"], shown["statsd_prefix"], shown["broadcast_tcp_port"]) == (1_500_000_000, "x", 9)
    assert shown["queue_scan_selection_count"] == 9
    assert shown.keys() == BY_KEY.keys()


def test_the_usage_names_every_flag() -> None:
    text = usage()
    assert [option.flag for option in TABLE if f"  --{option.flag}" not in text] == []
    assert "--max-body-size NUMBER: bytes of a command's body (default 5242880)" in text


def test_exit_status_is_nsqds(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert nsqd.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("nsqd v1.3.0 ")
    assert nsqd.main(["-h"]) == 0
    assert capsys.readouterr().out.startswith("usage: srtm nsqd")
    assert nsqd.main(["--no-such-flag"]) == 2
    err = capsys.readouterr().err
    assert "'--no-such-flag': is not one of nsqd's" in err
    assert "usage: srtm nsqd" in err
    for words in (["--node-id=5000"], ["--config", str(tmp_path / "none")], ["--data-path", str(tmp_path / "none")]):
        assert nsqd.main(words) == 1
        assert capsys.readouterr().err.startswith("srtm nsqd: ")
