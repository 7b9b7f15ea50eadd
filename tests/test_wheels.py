"""The distributions: the client imports nothing but its dependencies, no file is in both, and both work installed."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import srtm
from tests.support.ports import pick_addresses

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "wheels/client/README.md"
SERVER: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
CLIENT: dict[str, Any] = tomllib.loads((ROOT / "wheels/client/pyproject.toml").read_text())
CLIENT_FILES: list[str] = CLIENT["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
CLIENT_MODULES = sorted(
    path for name in CLIENT_FILES for path in [ROOT / name, *(ROOT / name).glob("*.py")] if path.suffix == ".py"
)
LARGEST_CLIENT = 200_000  # bytes of its wheel
INSTALLED_WITHIN_S = 400
# The topic of the client's README.
TOPIC = """
name = "la-highways"
rate = 100
burst = 10
[slo]
percentile = 99
latency_ms = 50
[[publishers]]
count = 8
rate = 10
id_prefix = "sensor-"
"""
PACKAGES = ("srtm", "broker", "distributor", "adaptor", "limiting", "bench")


def names(requirements: list[str]) -> set[str]:
    """Names of requirements, with their extras."""
    return {re.split(r"[=<>]", requirement)[0] for requirement in requirements}


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imported(path: Path) -> set[str]:
    """What a module imports, also inside functions: ``package.module`` and ``package.module.name``."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def is_module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").exists()


def test_the_client_imports_nothing_beyond_its_dependencies() -> None:
    own = set(map(module_name, CLIENT_MODULES))
    allowed = {*sys.stdlib_module_names, *names(CLIENT["project"]["dependencies"])}
    of_extras = {"srtm.mqtt": {"paho"}}
    wrong = []
    for path in CLIENT_MODULES:
        for name in sorted(imported(path)):
            top = name.partition(".")[0]
            if not (
                name in own or not is_module(name)
                if top == "srtm"
                else top in allowed | of_extras.get(module_name(path), set())
            ):
                wrong.append(
                    f"{module_name(path)} imports {name}: list it in wheels/client/pyproject.toml, or do without"
                )
    assert wrong == []


def test_the_client_runs_where_nothing_else_is_installed() -> None:
    """With the libraries of the server absent; those that the client's own libraries need are there."""
    absent = names(SERVER["project"]["dependencies"]) - names(CLIENT["project"]["dependencies"]) - {"h11"}
    code = f"""
import sys
from importlib import import_module

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {sorted(absent | {"srtm._native"})!r}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
for module in {list(map(module_name, CLIENT_MODULES))!r}:
    import_module(module)
from srtm import Publisher, Subscriber
print("imported")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("imported\n", "")


def test_the_server_leaves_out_what_the_client_has() -> None:
    left_out = [one["path"] for one in SERVER["tool"]["maturin"]["exclude"] if one["path"].startswith("srtm/")]
    assert left_out == ["srtm/native/**", *(f"{name}/**" if (ROOT / name).is_dir() else name for name in CLIENT_FILES)]


def test_both_have_one_version_and_need_each_other_in_it() -> None:
    version = srtm.__version__
    extras = CLIENT["project"]["optional-dependencies"]
    assert CLIENT["project"]["version"] == SERVER["project"]["version"] == version
    assert extras == {
        "server": [f"srtm-messaging-server=={version}"],
        "bench": [f"srtm-messaging-server[bench]=={version}"],
        "mqtt": ["paho-mqtt>=2.1"],
    }
    assert SERVER["project"]["dependencies"][0] == f"srtm-messaging=={version}"


def test_the_pinned_packages_are_those_that_the_distributions_need() -> None:
    served = {*names(CLIENT["project"]["dependencies"]), *names(SERVER["project"]["dependencies"])}
    assert served - {"srtm-messaging"} == direct("requirements-server.in")
    assert {*names(SERVER["project"]["optional-dependencies"]["bench"])} == direct("requirements.in")


def direct(file: str) -> set[str]:
    return {line for line in (ROOT / file).read_text().splitlines() if line and not line.startswith(("#", "-r"))}


@pytest.mark.parametrize("more", ["requirements.lock", "requirements-dev.lock"])
def test_what_the_image_has_is_what_was_tested(more: str) -> None:
    assert pins("requirements-server.lock") <= pins(more)


def pins(file: str) -> set[str]:
    return set(re.findall(r"^[\w.\[\]-]+==[^\s\\]+", (ROOT / file).read_text(), re.MULTILINE))


# Installed


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The client's and the server's wheel, as ``make wheels`` makes them."""
    folder = tmp_path_factory.mktemp("dist")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    subprocess.run(["make", "wheels", f"DIST={folder}"], cwd=ROOT, env=environment, check=True, timeout=1200)
    [client] = folder.glob("srtm_messaging-*.whl")
    [server] = folder.glob("srtm_messaging_server-*.whl")
    return client, server


def environment_with(folder: Path, *requirements: str) -> Path:
    """A fresh environment with these packages, their dependencies as pinned; skips where no index answers."""
    pinned = "\n".join(re.sub(r"\[.*\]", "", line) for line in pins("requirements.lock"))
    (folder / "pinned.txt").write_text(pinned)
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True, timeout=120)
    command = [folder / "venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    done = subprocess.run(
        [*command, "--constraint", folder / "pinned.txt", *requirements],
        capture_output=True,
        text=True,
        timeout=INSTALLED_WITHIN_S,
    )
    if "Could not find a version" in done.stderr or "Failed to establish" in done.stderr:
        pytest.skip(f"no package index has the dependencies: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return folder / "venv"


@contextmanager
def running_cluster(environment: Path, folder: Path) -> Iterator[dict[str, str]]:
    """A broker and a distributor of that environment; yields the variables of their clients."""
    [address] = pick_addresses(1)
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("SRTM", "PYTHON"))}
    command = [environment / "bin/srtm", "up", "--brokers", "1", "--mcap", "1000", "--data", folder / "data"]
    with subprocess.Popen(
        [*command, "--http-address", address], cwd=folder, env=variables, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("ready: "), line
            yield variables | {"SRTM_DISTRIBUTOR": f"http://{address}"}
        finally:
            process.terminate()


def output(command: list[str | Path], folder: Path, variables: dict[str, str], status: int = 0) -> str:
    """What a program prints, away from the checkout."""
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=120)
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_no_file_is_in_both_and_none_is_missing(wheels: tuple[Path, Path]) -> None:
    client, server = (
        {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info" not in name} for wheel in wheels
    )
    assert client & server == set()
    present = {path.relative_to(ROOT).as_posix() for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    assert {name for name in client | server if name.endswith(".py")} == present
    assert {name.partition("/")[0] for name in client} == {"srtm"}
    assert wheels[0].stat().st_size < LARGEST_CLIENT
    assert not any(name.endswith(".rs") for name in server)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_an_installed_client_talks_to_an_installed_server(wheels: tuple[Path, Path], tmp_path: Path) -> None:
    client_folder, server_folder = tmp_path / "client", tmp_path / "server"
    client_folder.mkdir()
    server_folder.mkdir()
    client = environment_with(client_folder, str(wheels[0]))
    server = environment_with(server_folder, f"{wheels[0]}[server]", f"--find-links={wheels[0].parent}")
    [program] = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    (server_folder / "topic.toml").write_text(TOPIC)
    with running_cluster(server, server_folder) as variables:
        output([server / "bin/srtm", "topic", "submit", "topic.toml"], server_folder, variables)
        printed = output([client / "bin/python", "-c", program], client_folder, variables)
    assert printed.splitlines() == ["waits 0.0 ms for its token", "b'17.5'"]
    [packages] = client.glob("lib/python*/site-packages")
    assert not any((packages / name).exists() for name in PACKAGES[1:])
    assert not (client / "bin/srtm").exists()
    told = output([server / "bin/srtm", "bench", "--help"], server_folder, variables, status=1)
    assert "pip install 'srtm-messaging[bench]'" in told


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_extra_for_measurements_brings_their_libraries(wheels: tuple[Path, Path], tmp_path: Path) -> None:
    bench = environment_with(tmp_path, f"{wheels[0]}[bench]", f"--find-links={wheels[0].parent}")
    assert "fig06a" in output([bench / "bin/srtm", "bench", "--help"], tmp_path, dict(os.environ))
