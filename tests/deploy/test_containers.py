"""The image and the compose file, as far as they can be checked without a daemon."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.deployed_commands import unknown_variables, unknown_words

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
CONTAINERFILE = (DEPLOY / "Containerfile").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if service["image"] == "srtm"}


def test_the_image_has_two_stages_and_runs_as_nobody_in_particular() -> None:
    stages = re.findall(r"^FROM (\S+)", CONTAINERFILE, re.MULTILINE)
    assert len(stages) == 2
    assert not any(stage.endswith(":latest") or ":" not in stage for stage in stages)
    last = CONTAINERFILE[CONTAINERFILE.rindex("\nFROM ") :]
    assert "USER 10001:10001" in last
    assert "rust" not in last
    assert 'ENTRYPOINT ["srtm"]' in last


def test_the_context_has_what_the_build_needs_and_nothing_large() -> None:
    lines = (DEPLOY / "Containerfile.dockerignore").read_text().splitlines()
    kept = {line[1:] for line in lines if line.startswith("!")}
    assert lines[0] == "*"
    assert all((ROOT / name).exists() for name in kept)
    manifest = (ROOT / "Cargo.toml").read_text()
    members = re.findall(r'"([a-z_/]+)"', manifest[manifest.index("members") : manifest.index("]")])
    assert {member.partition("/")[0] for member in members} <= kept
    assert {"requirements-server.lock", "pyproject.toml", "wheels", "README.md", "LICENSE"} <= kept


def test_compose_runs_a_whole_cluster() -> None:
    kinds = [str(service["command"][0]) for service in OURS.values()]
    assert sorted(kinds) == ["broker"] * 3 + ["distributor"] * 2 + ["limit"]
    assert {"postgres", "prometheus", "grafana"} == SERVICES.keys() - OURS.keys()


@pytest.mark.parametrize("name", OURS)
def test_a_service_of_compose_has_flags_and_variables_that_exist(name: str) -> None:
    service = OURS[name]
    assert unknown_words(service["command"]) == []
    assert unknown_variables(service["environment"]) == []
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]


def test_what_compose_names_is_there_and_open_on_this_host_alone() -> None:
    for name, service in SERVICES.items():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), name
        assert set(service.get("depends_on", {})) <= SERVICES.keys()
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            if source.startswith("./"):
                assert (DEPLOY / source).exists(), source
            else:
                assert source in COMPOSE["volumes"]


def test_prometheus_asks_every_service() -> None:
    scraped = yaml.safe_load((DEPLOY / "compose" / "prometheus.yaml").read_text())["scrape_configs"]
    targets = {
        target.partition(":")[0] for job in scraped for one in job["static_configs"] for target in one["targets"]
    }
    assert targets == OURS.keys()


@pytest.mark.slow
def test_docker_takes_the_compose_file() -> None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("docker compose is not installed here")
    done = subprocess.run(
        [docker, "compose", "-f", str(DEPLOY / "compose.yaml"), "config", "--quiet"],
        env={"PATH": "/usr/bin:/bin", "SRTM_TOKEN": "t", "SRTM_DATABASE_PASSWORD": "p"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_image_is_built_and_answers() -> None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "info"], capture_output=True, check=False).returncode:
        pytest.skip("no container daemon answers here")
    build = [docker, "build", "--quiet", "--file", str(DEPLOY / "Containerfile"), str(ROOT)]
    image = subprocess.run(build, capture_output=True, text=True, check=True).stdout.strip()
    said = subprocess.run([docker, "run", "--rm", image, "--version"], capture_output=True, text=True, check=True)
    assert said.stdout.startswith("srtm ")
