"""``srtm limit ...`` against a limit service in this process."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from limiting.api.app import make_app
from limiting.api.parts import Parts
from limiting.config import LimitConfig
from limiting.contract_store import ContractStore
from limiting.nodes.decisions import Decisions
from srtm.cli import main
from srtm.client.limit_service import LimitClient
from srtm.commands import limits
from srtm.limiting.limiter import Limiter
from srtm.operations import limit_load
from srtm.operations.limit_load import Heard

FILE = """
[[contracts]]
namespace = "api"
subject = "user:*"
policies = [{name = "burst", rate = 0.001, burst = 2}]
"""


@pytest.fixture(autouse=True)
def service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    decisions = Decisions(Limiter())
    parts = Parts(decisions, ContractStore(decisions), LimitConfig())
    transport = httpx.ASGITransport(app=make_app(parts))
    monkeypatch.setattr(limits, "LimitClient", partial(LimitClient, transport=transport))
    (tmp_path / "contracts.toml").write_text(FILE)
    assert main(["limit", "contract", "submit", str(tmp_path / "contracts.toml")]) == 0


def result(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    capsys.readouterr()
    main(["limit", *words, "--json", "-"])
    return json.loads(capsys.readouterr().out)["result"]


def test_a_check_says_so_by_its_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert [main(["limit", "check", "api", "user:1"]) for _ in range(3)] == [0, 0, 1]
    assert "refused by burst; may pass in" in capsys.readouterr().out
    assert main(["limit", "check", "api", "user:1", "--cost", "0", "--peek"]) == 0
    assert main(["limit", "check", "none", "user:1"]) == 2
    said = "srtm: subject 'user:1' is not known here: a contract of namespace 'none' must be for it\n"
    assert capsys.readouterr().err == said


def test_values_of_a_contract_are_set(capsys: pytest.CaptureFixture[str]) -> None:
    found = result(capsys, "contract", "set", "api", "user:*", "burst.rate=50", "shadow=true")
    assert (found["policies"][0]["rate"], found["policies"][0]["burst"], found["shadow"]) == (50, 2, True)
    (shown,) = result(capsys, "contract", "show", "api")
    assert shown == found
    assert result(capsys, "contract", "show", "other") == []
    assert main(["limit", "contract", "show", "other"]) == 0
    assert "there is no such contract" in capsys.readouterr().out
    assert main(["limit", "contract", "remove", "api", "user:*"]) == 0
    assert result(capsys, "contract", "show") == []


def test_who_changed_what_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["limit", "contract", "set", "api", "user:*", "shadow=true"]) == 0
    assert main(["limit", "ban", "api", "user:1"]) == 0
    capsys.readouterr()
    assert main(["limit", "audit", "--most", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    heads, changes = lines[::2], lines[1::2]
    assert [head.split("  ", 1)[1].split(": ", 1)[1] for head in heads] == [
        "PUT /limit/v1/subjects/api/user:1 (subject api user:1)",
        "PUT /limit/v1/contracts/api/user:* (contract api user:*)",
    ]
    assert changes == ["    burst: 2 -> 0", "    shadow: false -> true"]
    (first,) = result(capsys, "audit", "--subject", "contract api user:*", "--most", "1")
    assert (first["number"], first["who"]) == (2, "anybody")


@pytest.mark.parametrize("change", ["shadow", "=1", "other.rate=1", "burst.rate=0", "burst.rat=1", "name=x"])
def test_changes_that_cannot_be_are_refused(capsys: pytest.CaptureFixture[str], change: str) -> None:
    assert main(["limit", "contract", "set", "api", "user:*", change]) == 2
    (shown,) = result(capsys, "contract", "show")
    assert shown["version"] == 1


def test_contracts_are_of_a_limit_service_or_of_a_distributor(capsys: pytest.CaptureFixture[str]) -> None:
    urls = ["--url", "http://127.0.0.1:1", "--distributor", "http://127.0.0.1:1"]
    assert main(["limit", "contract", "show", *urls]) == 2
    assert "must not be given together with --url" in capsys.readouterr().err
    assert main(["limit", "contract", "show", *urls[2:]]) == 1
    assert "http://127.0.0.1:1" in capsys.readouterr().err


def test_texts_need_no_quotes() -> None:
    document = {"policies": [{"name": "day", "kind": "window", "quota": 1, "window": "1d"}]}
    changed = limits.changed(document, ["day.window=12h", "day.quota=7"])
    assert changed["policies"] == [{"name": "day", "kind": "window", "quota": 7, "window": "12h"}]


def test_subjects_are_shown_banned_and_pardoned(capsys: pytest.CaptureFixture[str]) -> None:
    assert result(capsys, "ban", "api", "user:1")["allowed"] is False
    assert result(capsys, "show", "api", "user:1")["allowed"] is False
    assert result(capsys, "ban", "api", "user:1", "--lift")["allowed"] is True
    found = result(capsys, "subjects", "api")
    assert (found["in_memory"], found["banned"]) == (0, [])
    for words in (["show", "api", "user:1"], ["subjects", "api"], ["ban", "api", "user:1"], ["contract", "show"]):
        assert main(["limit", *words]) == 0
    assert "user:1 under user:*" in capsys.readouterr().out


def test_bans_that_hold_and_watched_subjects_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("user:1", "user:2", "user:3"):
        result(capsys, "ban", "api", name)
    result(capsys, "ban", "api", "user:2", "--lift")
    assert main(["limit", "watch", "api", "user:4"]) == 0
    for cost in (2, 1):
        main(["limit", "check", "api", "user:4", "--cost", str(cost)])
    found = result(capsys, "subjects", "api")
    assert [each["subject"] for each in found["banned"]] == ["user:3", "user:1"]
    (watched,) = found["watched"]
    assert [watched[name] for name in ("subject", "allowed", "refused", "cost")] == ["user:4", 1, 1, 2]
    assert sum(watched["seconds"]["allowed"]) == 1
    assert main(["limit", "subjects", "api"]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("user:1", "user:3", "user:4", "UTC", "the last minute"))
    assert main(["limit", "watch", "api", "user:4", "--stop"]) == 0
    assert result(capsys, "subjects", "api")["watched"] == []
    assert main(["limit", "watch", "api", "user:4", "--stop"]) == 2
    assert main(["limit", "watch", "none", "user:4"]) == 2


def test_a_service_that_is_away_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LimitClient", LimitClient)
    assert main(["limit", "contract", "show", "--url", "http://127.0.0.1:1"]) == 1
    assert "http://127.0.0.1:1" in capsys.readouterr().err
    assert main(["limit", "contract", "show", "--url", "nowhere"]) == 2


ENVOY = """
domain: edge
descriptors:
  - key: remote_address
    rate_limit: {unit: minute, requests_per_unit: 5}
"""


def test_a_configuration_of_envoy_becomes_a_contract_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config, contracts = tmp_path / "config.yaml", tmp_path / "edge.toml"
    config.write_text(ENVOY)
    assert main(["limit", "import", "envoy", str(config), "--output", str(contracts)]) == 0
    assert main(["limit", "contract", "submit", str(contracts)]) == 0
    assert main(["limit", "check", "edge", "remote_address=10.0.0.1", "--cost", "5"]) == 0
    assert main(["limit", "check", "edge", "remote_address=10.0.0.1"]) == 1
    capsys.readouterr()
    assert main(["limit", "import", "envoy", str(config), "--slices", "60"]) == 0
    assert capsys.readouterr().out == contracts.read_text().replace("slices = 1, ", "slices = 60, ").replace(
        "weighted = false, aligned = true", "weighted = true, aligned = false"
    )


def test_what_cannot_be_imported_is_told_with_its_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(ENVOY.replace("minute", "moment"))
    assert main(["limit", "import", "envoy", str(config)]) == 2
    assert f"{config}: descriptors[0].rate_limit.unit: 'moment': must be second" in capsys.readouterr().err
    config.write_text(ENVOY)
    assert main(["limit", "import", "envoy", str(config), str(config)]) == 2
    assert "remote_address=*" in capsys.readouterr().err
    assert main(["limit", "import", "envoy", str(tmp_path)]) == 2
    config.write_bytes(b"\xff")
    assert main(["limit", "import", "envoy", str(config)]) == 2
    config.write_text(ENVOY)
    assert main(["limit", "import", "envoy", str(config), "--output", str(tmp_path)]) == 2


def test_no_subject_that_was_looked_at_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["limit", "check", "api", "user:1"]) == 0
    assert main(["limit", "subjects", "api"]) == 0
    assert "one check in 16 is looked at" in capsys.readouterr().out


@pytest.mark.parametrize(("errors", "status"), [(0, 0), (1, 1)])
def test_a_bench_whose_checks_got_no_decision_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, errors: int, status: int
) -> None:
    async def measured(*_: object) -> dict[str, float | int]:
        return Heard(allowed=1, errors=errors, took_s=1.0).to_json()

    monkeypatch.setattr(limit_load, "bench_service", measured)
    assert main(["limit", "bench", "api"]) == status
    assert ("srtm limit check NAMESPACE bench-0" in capsys.readouterr().out) == bool(errors)
