"""The distributor as a process, held to its own OpenAPI document by schemathesis: every operation, with arguments and
bodies that the document allows and with ones that it does not. What that does not see: ``test_openapi.py``."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation.modes import GenerationMode
from schemathesis.specs.openapi import checks

from distributor.api.access import is_open
from distributor.api.openapi import ANSWERS
from srtm.cluster.token_files import issue

CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
]
TOPIC = {"rate": 50, "burst": 5, "slo": {"percentile": 99, "latency_ms": 5}, "publishers": [{"count": 3, "rate": 2}]}
BROKER = {"incarnation": "1", "srtm_version": "1", "tcp_address": "h:1", "http_address": "h:2", "mcap": 900}

pytestmark = pytest.mark.slow


@dataclass
class Live:
    """A distributor that runs. ``headers``: an operator's; ``known``: what there is, by the first part of the path."""

    url: str
    headers: dict[str, str]
    known: dict[str, str] = field(default_factory=dict)
    stocked: int = 0

    def __post_init__(self) -> None:
        self._client = httpx.Client(base_url=self.url, headers=self.headers, timeout=20)
        document = self._client.get("/openapi.json").raise_for_status().json()
        self.schema: Any = schemathesis.openapi.from_dict(document)
        self.schema.config.update(base_url=self.url)
        self.schema.config.generation.update(with_security_parameters=False)  # credentials are a test of their own

    def stock(self) -> None:
        """A topic, and a broker that nobody has touched: any other may be dead, or of a later incarnation."""
        self.stocked += 1
        self.known = {"topics": "cars", "brokers": f"b{self.stocked}"}
        self._client.post(f"/v1/brokers/{self.known['brokers']}/sync", json=BROKER).raise_for_status()
        self._client.put("/v1/topics/cars", json=TOPIC).raise_for_status()

    def close(self) -> None:
        self._client.close()


@contextmanager
def running(folder: Path, *options: str, headers: dict[str, str]) -> Iterator[Live]:
    command = [sys.executable, "-m", "srtm", "distributor", "--http-address", "127.0.0.1:0"]
    command += ["--fitting", "off", "--relief", "off", "--store", f"sqlite:///{folder / 's.sqlite3'}", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        address = process.stderr.readline().split("http=")[1].split()[0]  # said once it answers
        rest = threading.Thread(target=process.stderr.read)  # a pipe that nobody reads would stop it
        rest.start()
        live = Live(f"http://{address}", headers)
        try:
            yield live
        finally:
            live.close()
            process.terminate()
            process.wait(20)
            rest.join()


@pytest.fixture(scope="module")
def without_tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with running(tmp_path_factory.mktemp("open"), headers={}) as live:
        yield live


@pytest.fixture(scope="module")
def with_tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("closed")
    issued = issue(folder, [])
    headers = {"Authorization": f"Bearer {issued.operator}"}
    with running(folder, "--tokens", str(issued.list_file), headers=headers) as live:
        yield live


def try_all(live: Live, method: str, path: str, mode: GenerationMode, examples: int, headers: dict[str, str]) -> None:
    """Each answer is checked; also those of requests that the document forbids, which must be refused."""
    if mode is GenerationMode.NEGATIVE and not can_be_wrong(live, method, path):
        return
    live.stock()

    @settings(max_examples=examples, phases=[Phase.generate], suppress_health_check=[*HealthCheck])
    @given(case=live.schema[path][method].as_strategy(generation_mode=mode))
    def holds(case: Any) -> None:
        if mode is GenerationMode.POSITIVE:
            fit(case, live.known)
        dont_wait(case)
        answer = case.call_and_validate(checks=CHECKS, headers=headers)
        if answer.status_code == 400 and path.startswith("/v1/"):
            problem = answer.json()
            assert problem["field"], problem
            assert problem["rule"], problem

    holds()


def can_be_wrong(live: Live, method: str, path: str) -> bool:
    """Whether there is anything in a request that the document has a rule for. Any path is a name."""
    operation = live.schema.raw_schema["paths"][path][method.lower()]
    return "requestBody" in operation or any(one["in"] == "query" for one in operation.get("parameters", ()))


def fit(case: Any, known: dict[str, str]) -> None:
    """Names of what is there, where a random one only ever leads to 404."""
    asks_the_broker = "/mqtt/" in case.path  # none runs here
    if "name" in case.path_parameters and not asks_the_broker:
        kind = case.path.split("/")[2]
        case.path_parameters["name"] = known.get(kind, case.path_parameters["name"])


def dont_wait(case: Any) -> None:
    """Long polls take as long as they are told to."""
    for part in (case.query, case.body):
        if isinstance(part, dict) and isinstance(part.get("wait_s"), int | float):
            part["wait_s"] = min(part["wait_s"], 0.001)


@pytest.mark.parametrize("mode", GenerationMode)
@pytest.mark.parametrize(("method", "path"), sorted(ANSWERS))
def test_whatever_comes_is_answered_as_described(
    without_tokens: Live, method: str, path: str, mode: GenerationMode
) -> None:
    try_all(without_tokens, method, path, mode, 8, headers={})


@pytest.mark.parametrize(("method", "path"), sorted(ANSWERS))
def test_with_an_operators_token_too(with_tokens: Live, method: str, path: str) -> None:
    try_all(with_tokens, method, path, GenerationMode.POSITIVE, 3, with_tokens.headers)


@pytest.mark.parametrize(("method", "path"), sorted(ANSWERS))
def test_without_a_token_it_is_refused_as_described(with_tokens: Live, method: str, path: str) -> None:
    operation = with_tokens.schema[path][method]

    @settings(max_examples=2, phases=[Phase.generate], suppress_health_check=[*HealthCheck])
    @given(case=operation.as_strategy())
    def holds(case: Any) -> None:
        answer = case.call_and_validate(checks=CHECKS)
        assert (answer.status_code == 401) is not is_open(path)

    holds()
