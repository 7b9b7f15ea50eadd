"""Every program in ``examples/``, and what the README shows, runs as it stands, against a cluster on this machine."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import tomllib
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from srtm.cluster.cluster_file import read_cluster
from tests.support.other_process import ask_http, wait_until
from tests.support.ports import pick_addresses
from tests.support.shown_commands import shown_commands

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
README = (ROOT / "README.md").read_text()
MQTT = (ROOT / "docs" / "mqtt.md").read_text()
PATIENCE_S = 120
PROGRAMS = {
    "asyncio_worker.py",
    "fastapi_limits.py",
    "fastapi_service.py",
    "http_publish.py",
    "http_submit.py",
    "mqtt_paho.py",
    "publish.py",
    "pynsq_consumer.py",
    "subscribe.py",
    "threads.py",
}


def run(environment: dict[str, str], *command: str, stdin: str = "") -> str:
    """Run a Python program; return what it prints."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=environment,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A cluster of two brokers with the topic of ``sensors.toml``; yields the environment of its clients."""
    [address] = pick_addresses(1)
    data = tmp_path_factory.mktemp("cluster")
    command = [sys.executable, "-m", "srtm", "up", "--brokers", "2", "--mcap", "1300"]
    command += ["--data", str(data), "--http-address", address, "--mqtt"]
    environment = os.environ | {"SRTM_DISTRIBUTOR": f"http://{address}", "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline().decode()
            assert line.startswith("ready: "), line
            run(environment, "-m", "srtm", "topic", "submit", "examples/sensors.toml")
            state = read_cluster(data)
            assert state is not None
            yield environment | {"MQTT": str(state.brokers[0].mqtt_address)}
        finally:
            process.terminate()


def test_every_program_is_run_here() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == PROGRAMS
    assert {path.name for path in EXAMPLES.iterdir() if path.is_dir()} - {"__pycache__"} == {
        "go_consumer",
        "js_consumer",
    }


def test_what_a_publisher_sends_a_subscriber_prints(cluster: dict[str, str]) -> None:
    published = run(cluster, "examples/publish.py").splitlines()
    received = run(cluster, "examples/subscribe.py").splitlines()
    assert [line.split()[0] for line in published] == ["17.5", "17.6", "17.8", "18.1", "18.0"]
    assert sorted(line.split()[0] for line in received) == ["17.5", "17.6", "17.8", "18.0", "18.1"]


def submit(cluster: dict[str, str], folder: Path, name: str) -> str:
    """A small topic that no other test reads; returns the id of its publisher."""
    file = folder / "topic.toml"
    file.write_text(
        f'name = "{name}"\nrate = 10\nburst = 10\n[slo]\npercentile = 99\nlatency_ms = 50\n'
        f'[[publishers]]\ncount = 1\nrate = 1\nid_prefix = "{name}-"\n'
    )
    run(cluster, "-m", "srtm", "topic", "submit", str(file))
    return f"{name}-0"


def test_threads_read_what_threads_publish(cluster: dict[str, str], tmp_path: Path) -> None:
    publisher_id = submit(cluster, tmp_path, "threads")
    printed = run(cluster, "examples/threads.py", "threads", publisher_id).splitlines()
    assert printed[:5] == ["waits 0.0 ms for its token"] * 5
    assert sorted(line.partition(" from ")[0] for line in printed[5:]) == [f"reading {n}" for n in range(5)]


def test_an_asyncio_program_handles_what_it_publishes(cluster: dict[str, str], tmp_path: Path) -> None:
    publisher_id = submit(cluster, tmp_path, "events")
    printed = run(cluster, "examples/asyncio_worker.py", "events", publisher_id).splitlines()
    assert "longest wait for a token: 0.0 ms" in printed
    assert sorted(line for line in printed if "handled" in line) == [f"event {n} handled" for n in range(5)]


def test_a_web_service_publishes_what_it_is_sent(cluster: dict[str, str], tmp_path: Path) -> None:
    publisher_id = submit(cluster, tmp_path, "web")
    [address] = pick_addresses(1)
    port = int(address.rpartition(":")[2])
    command = [sys.executable, "examples/fastapi_service.py", str(port), "web", publisher_id]
    with subprocess.Popen(command, cwd=ROOT, env=cluster) as service:
        try:
            wait_until("the service answers", lambda: answers(port))
            assert ask_http(port, "POST", "/readings", b"19.5") == (202, b'{"wait_ms":0.0}')
            status, refusal = ask_http(port, "POST", "/readings", b"")
            assert status == 400
            assert b"body" in refusal
        finally:
            service.terminate()
    assert run(cluster, "-m", "srtm", "subscribe", "web", "archive", "--count", "1").split() == ["19.5"]


@contextmanager
def running(environment: dict[str, str], *command: str) -> Iterator[None]:
    with subprocess.Popen([sys.executable, *command], cwd=ROOT, env=environment) as process:
        try:
            yield
        finally:
            process.terminate()


def statuses(port: int, times: int) -> Counter[int]:
    """What a client is answered that asks so often."""
    return Counter(ask_http(port, "GET", "/readings")[0] for _ in range(times))


@pytest.mark.parametrize("where", ["here", "service"])
def test_a_web_service_holds_its_clients_to_a_contract(where: str) -> None:
    web, limit = (int(address.rpartition(":")[2]) for address in pick_addresses(2))
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with ExitStack() as stack:
        if where == "service":
            environment["SRTM_LIMIT"] = f"http://127.0.0.1:{limit}"
            command = ["-m", "srtm", "limit", "serve", "--http-address", f"127.0.0.1:{limit}"]
            stack.enter_context(running(environment, *command, "--contracts", "examples/contracts.toml"))
            wait_until("the limit service answers", lambda: answers(limit))
        stack.enter_context(running(environment, "examples/fastapi_limits.py", str(web)))
        wait_until("the web service answers", lambda: answers(web))
        found = statuses(web, 300)
        assert found.keys() == {200, 429}
        assert found[200] >= 39, "the question whether it answers took one of 40"


def answers(port: int) -> bool:
    """Whether anybody listens there."""
    try:
        ask_http(port, "GET", "/")
    except OSError:
        return False
    return True


def test_what_a_command_publishes_pynsq_reads(cluster: dict[str, str]) -> None:
    lines = "".join(f"reading {n}\n" for n in range(5))
    run(cluster, "-m", "srtm", "publish", "la-highways", "--id", "sensor-8", stdin=lines)
    assert sorted(run(cluster, "examples/pynsq_consumer.py").splitlines()) == [f"reading {n}" for n in range(5)]


def cells_of(notebook: Path) -> str:
    """The code of a notebook, all cells as one."""
    cells = json.loads(notebook.read_text())["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")


def test_a_notebook_reads_what_it_sends(cluster: dict[str, str], tmp_path: Path) -> None:
    """As Jupyter runs it: in a running event loop, with ``await`` outside of functions."""
    publisher_id = submit(cluster, tmp_path, "noted")
    code = cells_of(EXAMPLES / "notebook.ipynb").replace('"la-highways", "sensor-10"', f'"noted", "{publisher_id}"')
    assert publisher_id in code
    program = "import ast, asyncio, sys\n"
    program += "code = compile(sys.stdin.read(), 'notebook', 'exec', ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)\n"
    program += "asyncio.run(eval(code, {}))"
    printed = run(cluster, "-c", program, stdin=code).splitlines()
    assert printed == ["waits 0.0 ms for its token"] * 5 + ["[17.5, 17.6, 17.7, 17.8, 17.9]"]


def tool(name: str) -> str:
    """Its path; skips where it is not installed."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed here")
    return found


def made_ready(command: list[str], folder: Path) -> None:
    """Fetch and build; skips where no registry answers."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    said = done.stderr + done.stdout
    if done.returncode and any(word in said for word in ("dial tcp", "no such host", "ENOTFOUND", "ECONNREFUSED")):
        pytest.skip(f"no registry answers: {said.strip().splitlines()[-1]}")
    assert done.returncode == 0, said


@pytest.mark.long
@pytest.mark.parametrize("language", ["go", "js"])
def test_nsq_clients_of_other_languages_read_a_topic(cluster: dict[str, str], tmp_path: Path, language: str) -> None:
    program = shutil.copytree(EXAMPLES / f"{language}_consumer", tmp_path / "program")
    if language == "go":
        made_ready([tool("go"), "build", "-o", "consumer", "."], program)
        command = ["./consumer"]
    else:
        command = [tool("node"), "consumer.js"]
        made_ready([tool("npm"), "install", "--no-audit", "--no-fund", "--loglevel=error"], program)
    publisher_id = submit(cluster, tmp_path, language)
    lines = "".join(f"reading {n}\n" for n in range(5))
    run(cluster, "-m", "srtm", "publish", language, "--id", publisher_id, stdin=lines)
    done = subprocess.run(
        [*command, language, "archive", "5"],
        cwd=program,
        env=cluster,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, [f"reading {n}" for n in range(5)]), done.stderr


def test_what_an_mqtt_client_publishes_is_acknowledged_and_comes_back(cluster: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is not installed")
    publisher_id = submit(cluster, tmp_path, "heat")
    host, _, port = cluster["MQTT"].rpartition(":")
    printed = run(cluster, "examples/mqtt_paho.py", host, port, "heat", publisher_id).splitlines()
    assert len([line for line in printed if line.startswith("Success")]) == 5
    came = [line for line in printed if line.startswith("heat: ")]
    assert came == ["heat: 17.5", "heat: 17.6", "heat: 17.8", "heat: 18.1", "heat: 18.0"]


def test_what_is_published_by_http_comes_to_a_subscriber(cluster: dict[str, str]) -> None:
    answer = run(cluster, "examples/http_publish.py", stdin="20.5\n21.0\n")
    assert answer.strip().endswith("says OK")
    received = run(cluster, "examples/subscribe.py", "la-highways", "archive", "2").splitlines()
    assert sorted(line.split()[0] for line in received) == ["20.5", "21.0"]


def test_a_topic_submitted_by_http_is_placed(cluster: dict[str, str]) -> None:
    lines = run(cluster, "examples/http_submit.py").splitlines()
    assert lines[0].startswith("thermometers: placed; ")
    assert "100 publishers, share 120.0 msg/s" in lines[1]


def test_a_bench_of_a_declared_topic_accounts_for_every_message(cluster: dict[str, str], tmp_path: Path) -> None:
    submit(cluster, tmp_path, "benched")
    command = ["-m", "srtm", "bench", "topic", "benched", "--seconds", "8", "--json", str(tmp_path / "found.json")]
    done = subprocess.run([sys.executable, *command], cwd=ROOT, env=cluster, timeout=PATIENCE_S, check=False)
    assert done.returncode in (0, 1, 3)  # which of them is up to this machine
    found = json.loads((tmp_path / "found.json").read_text())["result"]
    assert found["sent"] > 0
    assert (found["lost"], found["refused"], found["strange"]) == (0, 0, 0)


def blocks(language: str) -> list[str]:
    """The README's code blocks of that language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def test_the_topic_of_the_readme_is_that_of_the_examples() -> None:
    [shown] = blocks("toml")
    document = tomllib.loads((EXAMPLES / "sensors.toml").read_text())
    assert tomllib.loads(shown) == document


def test_the_client_of_the_readme_reads_what_it_sent(cluster: dict[str, str]) -> None:
    [client, _] = blocks("python")
    assert run(cluster, "-c", client).splitlines() == ["waits 0.0 ms for its token", "b'17.5'"]


def test_the_mqtt_publisher_of_the_manual_is_told_what_it_waited(cluster: dict[str, str], tmp_path: Path) -> None:
    # On a topic of its own: nobody else reads its message.
    (tmp_path / "attic.toml").write_text(
        'name = "attic"\nrate = 20\nburst = 5\nslo = { percentile = 99, latency_ms = 50 }\n'
        'publishers = [{ count = 9, rate = 1, id_prefix = "sensor-" }]\n'
    )
    run(cluster, "-m", "srtm", "topic", "submit", str(tmp_path / "attic.toml"))
    [publisher] = re.findall(r"^```python\n(from srtm import mqtt\n.*?)^```$", MQTT, re.DOTALL | re.MULTILINE)
    assert run(cluster, "-c", publisher.replace("la-highways", "attic")) == "0.0\n"


def test_the_pynsq_reader_of_the_readme_prints_messages(cluster: dict[str, str]) -> None:
    # On a topic of its own: it is killed, and what it has not finished by then comes again.
    run(cluster, "examples/http_submit.py")
    run(cluster, "examples/publish.py", "thermometers", "thermometer-1")
    [_, reader] = blocks("python")
    reader = reader.replace("la-highways", "thermometers")
    reader = reader.replace("http://127.0.0.1:4190", cluster["SRTM_DISTRIBUTOR"])  # where the README's cluster is
    with subprocess.Popen([sys.executable, "-uc", reader], cwd=ROOT, env=cluster, stdout=subprocess.PIPE) as process:
        deadline = threading.Timer(PATIENCE_S, process.kill)
        deadline.start()
        try:
            assert process.stdout is not None
            printed = {process.stdout.readline().decode().strip() for _ in range(5)}
        finally:
            deadline.cancel()
            process.kill()
    assert printed == {"b'17.5'", "b'17.6'", "b'17.8'", "b'18.1'", "b'18.0'"}


def test_the_commands_of_the_readme_succeed(cluster: dict[str, str]) -> None:
    shown = re.findall(r"^    \.venv/bin/srtm ((?:topic|status).*)$", README, re.MULTILINE)
    assert len(shown) == 4
    for command in shown:
        assert "la-highways" in run(cluster, "-m", "srtm", *shlex.split(command, comments=True))


# What changes nothing, and ends by itself.
READ_ONLY = {
    ("audit",), ("brokers", "list"), ("capacity", "show"), ("mqtt", "sessions"), ("mqtt", "retained"), ("status",),
    ("topic", "decisions"), ("topic", "diff"), ("topic", "export"), ("topic", "groups"), ("topic", "penalty"),
    ("topic", "plan"), ("topic", "publishers"), ("topic", "show"), ("topic", "why"),
}  # fmt: skip
PLACES = {"NAME": "la-highways", "FILE": "examples/sensors.toml", "NAME.toml": "examples/sensors.toml"}
PAGES = [*ROOT.glob("docs/*.md"), *ROOT.glob("*.md")]
SHOWN = {
    tuple(PLACES.get(word, word) for word in words)
    for page in PAGES
    for words in shown_commands(page.read_text())
    if tuple(words[:2]) in READ_ONLY or tuple(words[:1]) in READ_ONLY
}
CHANGING = ("--watch", "--add", "--remove", "--apply", "--clear")


def test_commands_of_the_documents_that_only_look_succeed(cluster: dict[str, str]) -> None:
    looking = sorted(words for words in SHOWN if not set(words) & set(CHANGING))
    assert len(looking) > 12
    failed = {}
    for words in looking:
        command = [sys.executable, "-m", "srtm", *words]
        done = subprocess.run(
            command, cwd=ROOT, env=cluster, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        if done.stderr or done.returncode not in (0, 1):  # 1: what they look at is not as it should be
            failed[" ".join(words)] = done.stderr
    assert failed == {}


def test_lines_that_the_readme_publishes_are_subscribed(cluster: dict[str, str]) -> None:
    [subscribe] = re.findall(r"^    \.venv/bin/srtm (subscribe .*)$", README, re.MULTILINE)
    [(lines, publish)] = re.findall(r"^    printf '(.*)' \| \.venv/bin/srtm (publish .*)$", README, re.MULTILINE)
    run(cluster, "-m", "srtm", *publish.split(), stdin=lines.replace("\\n", "\n"))
    assert run(cluster, "-m", "srtm", *subscribe.split()).split() == ["17.5", "18.0"]
