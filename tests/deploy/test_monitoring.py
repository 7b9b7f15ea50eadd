"""Prometheus's rules and Grafana's board: they ask for metrics that there are, and both programs' schemas hold."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.support.exposed_metrics import series_names

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "rules.yaml"
RULES_TEST = DEPLOY / "prometheus" / "rules_test.yaml"
RULE_LIST = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
ALERTS = {rule["alert"]: rule for rule in RULE_LIST if "alert" in rule}
RECORDED = {rule["record"] for rule in RULE_LIST if "record" in rule}
BOARD = json.loads((DEPLOY / "grafana" / "srtm.json").read_text())
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
NAME = re.compile(r"\b(?:srtm|process|python)_[a-z0-9_:]+")


def asked_for(queries: list[str]) -> set[str]:
    """Names of metrics in queries."""
    return {name for query in queries for name in NAME.findall(query)}


def promtool(*words: str | Path) -> str:
    """What promtool says if something is wrong."""
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    done = subprocess.run([found, *map(str, words)], capture_output=True, text=True, timeout=60, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


# Rules


def test_rules_ask_for_metrics_that_there_are() -> None:
    queries = [rule["expr"] for rule in RULE_LIST]
    assert asked_for(queries) - RECORDED - series_names() == set()
    assert RECORDED - asked_for(queries) - asked_for(QUERIES) == set()


def test_a_metric_that_is_not_there_is_noticed() -> None:
    assert asked_for(["rate(srtm_topic_latency_ms_bucket[5m])"]) - series_names() == {"srtm_topic_latency_ms_bucket"}


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_how_grave_it_is_and_what_to_do(name: str) -> None:
    assert name.startswith("Srtm")
    assert ALERTS[name]["labels"]["severity"] in ("page", "ticket")
    assert {"summary", "description"} <= ALERTS[name]["annotations"].keys()


def test_each_alert_is_tried() -> None:
    tried = [case for test in yaml.safe_load(RULES_TEST.read_text())["tests"] for case in test["alert_rule_test"]]
    assert {case["alertname"] for case in tried if case["exp_alerts"]} == ALERTS.keys()


def test_each_alert_stands_in_the_manual() -> None:
    manual = (DEPLOY.parent / "docs" / "operating.md").read_text()
    assert [name for name in ALERTS if f"`{name}`" not in manual] == []


def test_rules_fire_when_they_should() -> None:
    assert promtool("check", "rules", RULES) == ""
    assert promtool("test", "rules", RULES_TEST) == ""


def test_prometheus_takes_its_configuration() -> None:
    assert promtool("check", "config", "--syntax-only", DEPLOY / "compose" / "prometheus.yaml") == ""


# The board


def test_the_board_asks_for_metrics_that_there_are() -> None:
    variables = [each["query"]["query"] for each in BOARD["templating"]["list"] if each["type"] == "query"]
    assert asked_for([*QUERIES, *variables]) - RECORDED - series_names() == set()


def test_queries_of_the_board_are_promql(tmp_path: Path) -> None:
    expressions = [query.replace("$topic", "t").replace("$__rate_interval", "1m") for query in QUERIES]
    rules = [{"record": f"board:query{number}", "expr": text} for number, text in enumerate(expressions)]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": rules}]}))
    assert promtool("check", "rules", file) == ""


def lost(given: Any, read: Any, path: str = "board") -> Iterator[str]:
    """What Grafana's types did not take of a document."""
    if isinstance(given, dict) and isinstance(read, dict):
        for key, value in given.items():
            if key in read:
                yield from lost(value, read[key], f"{path}.{key}")
            elif value not in (None, "", [], {}, False):
                yield f"{path}.{key}"
    elif isinstance(given, list) and isinstance(read, list) and len(given) == len(read):
        for number, (one, other) in enumerate(zip(given, read, strict=True)):
            yield from lost(one, other, f"{path}[{number}]")
    elif given != read:
        yield path


def as_grafana_reads_it(board: dict[str, Any]) -> dict[str, Any]:
    register_default_plugins()
    read: dict[str, Any] = json.loads(JSONEncoder().encode(Dashboard.from_json(board)))
    return read


def test_grafanas_types_take_the_whole_board() -> None:
    assert list(lost(BOARD, as_grafana_reads_it(BOARD))) == []


def test_what_grafanas_types_do_not_know_is_noticed() -> None:
    wrong = {**BOARD, "refreshes": "15s"}
    assert list(lost(wrong, as_grafana_reads_it(wrong))) == ["board.refreshes"]


def test_panels_say_what_they_show_and_do_not_cover_each_other() -> None:
    assert [panel["title"] for panel in PANELS if not panel["description"]] == []
    idents = [panel["id"] for panel in BOARD["panels"]]
    assert len(idents) == len(set(idents))

    def cells(panel: dict[str, Any]) -> set[tuple[int, int]]:
        at = panel["gridPos"]
        return {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}

    for one, other in combinations(BOARD["panels"], 2):
        assert not cells(one) & cells(other), (one["title"], other["title"])
    assert max(x for panel in BOARD["panels"] for x, _ in cells(panel)) < 24


def test_grafana_is_told_where_prometheus_and_the_board_are() -> None:
    source = yaml.safe_load((DEPLOY / "compose" / "grafana-datasource.yaml").read_text())["datasources"][0]
    assert (source["type"], source["isDefault"]) == ("prometheus", True)
    assert [one["query"] for one in BOARD["templating"]["list"] if one["type"] == "datasource"] == ["prometheus"]
    provider = yaml.safe_load((DEPLOY / "compose" / "grafana-dashboards.yaml").read_text())["providers"][0]
    mounted = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["grafana"]["volumes"]
    assert f"./grafana/srtm.json:{provider['options']['path']}/srtm.json:ro" in mounted
