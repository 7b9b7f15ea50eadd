"""An upgrade without a stop: a broker of an earlier commit under today's distributor, and the other way.

$SRTM_OLD_CHECKOUT: a built checkout of that commit (``make build`` in it).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.ports import pick_addresses

pytestmark = [pytest.mark.slow, pytest.mark.long]
PATIENCE_S = 40.0
ROOT = Path(__file__).resolve().parents[2]
OLD = os.environ.get("SRTM_OLD_CHECKOUT", "")
TOPIC = {
    "name": "roads",
    "rate": 200.0,
    "burst": 10.0,
    "mode": "static",
    "slo": {"percentile": 99, "latency_ms": 50},
    "publishers": [{"count": 4, "rate": 40, "id_prefix": "roads-"}],
}


@pytest.fixture
def old() -> Path:
    if not OLD:
        pytest.skip("$SRTM_OLD_CHECKOUT names no built checkout of an earlier commit")
    path = Path(OLD).resolve()
    assert list((path / "srtm").glob("_native*.so")), f"{path} is not built"
    return path


@contextmanager
def service(checkout: Path, folder: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Runs ``srtm ARGUMENTS`` of a checkout in ``folder``; ended when the block ends."""
    own = checkout / ".venv" / "bin" / "python"
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SRTM_")}
    environment["PYTHONPATH"] = str(checkout)
    with (folder / f"{arguments[0]}.log").open("ab") as log:
        process = subprocess.Popen(
            [str(own) if own.exists() else sys.executable, "-m", "srtm", *arguments],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE_S)
        finally:
            process.kill()


def asked(url: str, body: object = None) -> Any:
    try:
        answer = httpx.get(url, trust_env=False) if body is None else httpx.post(url, json=body, trust_env=False)
    except httpx.TransportError:
        return None
    return answer.json() if answer.status_code < 300 else None


def wait_until(what: str, url: str, is_so: Any) -> Any:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        found = asked(url)
        if found is not None and is_so(found):
            return found
        time.sleep(0.1)  # another process cannot notify us
    pytest.fail(f"{what}: {asked(url)}")


@pytest.mark.parametrize(("newer", "places"), [("distributor", 1), ("distributor", 2), ("broker", 1), ("broker", 2)])
def test_one_of_the_two_is_newer_and_the_limit_holds(old: Path, tmp_path: Path, newer: str, places: int) -> None:
    of_distributor, of_broker = (ROOT, old) if newer == "distributor" else (old, ROOT)
    address, *others = pick_addresses(5)
    url = f"http://{address}"
    with ExitStack() as running:
        store = f"sqlite:///{tmp_path / 'store.sqlite3'}"
        running.enter_context(
            service(of_distributor, tmp_path, "distributor", "--http-address", address, "--store", store)
        )
        wait_until("no distributor", f"{url}/healthz", lambda _: True)
        for number in range(places):
            data = tmp_path / f"b{number}"
            data.mkdir()
            flags = ["--name", f"b{number}", "--mcap", "150" if places == 2 else "1000", "--distributor", url]
            flags += ["--tcp-address", others[2 * number], "--http-address", others[2 * number + 1]]
            running.enter_context(service(of_broker, data, "broker", *flags, "--data-path", str(data)))
        wait_until("no broker", f"{url}/v1/brokers", lambda found: sum(one["alive"] for one in found) == places)
        view = asked(f"{url}/v1/topics", TOPIC)
        assert view is not None
        shown = wait_until(
            "shares are not applied",
            f"{url}/v1/topics/roads",
            lambda topic: (
                topic["state"] == "placed"
                and all(one["applied_version"] == one["share_version"] for one in topic["brokers"])
            ),
        )
        assert len(shown["brokers"]) == places
        assert sum(one["rate"] for one in shown["brokers"]) == pytest.approx(200)
        for number, place in enumerate(shown["brokers"]):
            http = others[2 * int(place["broker"][1:]) + 1]
            bucket = wait_until("no bucket", f"http://{http}/v1/topics/roads/bucket", lambda _: True)
            assert bucket["rate"] == pytest.approx(place["rate"]), number


@pytest.mark.parametrize("newer", ["distributor", "broker"])
def test_one_of_the_two_is_newer_and_a_change_of_contracts_comes(old: Path, tmp_path: Path, newer: str) -> None:
    if not (old / "broker" / "leases" / "contract_holder.py").exists():
        pytest.skip("brokers of that commit know no contracts")
    of_distributor, of_broker = (ROOT, old) if newer == "distributor" else (old, ROOT)
    address, tcp, http = pick_addresses(3)
    url, data = f"http://{address}", tmp_path / "b"
    data.mkdir()
    flags = ["--name", "b", "--distributor", url, "--data-path", str(data), "--tcp-address", tcp]
    contracts = [
        {"namespace": name, "subject": "*", "policies": [{"name": "burst", "rate": 10, "burst": 5}]} for name in "abc"
    ]

    def in_force(wanted: dict[str, bool]) -> Any:
        return lambda stats: {one["namespace"]: one["shadow"] for one in stats.get("contracts", [])} == wanted

    with (
        service(
            of_distributor,
            tmp_path,
            *("distributor", "--http-address", address, "--store", f"sqlite:///{tmp_path / 'store.sqlite3'}"),
        ),
        service(of_broker, data, "broker", *flags, "--http-address", http),
    ):
        wait_until("no broker", f"{url}/v1/brokers", lambda found: any(one["alive"] for one in found))
        stats = f"http://{http}/stats?format=json"
        assert asked(f"{url}/v1/contracts", {"contracts": contracts}) is not None
        wait_until("no contracts", stats, in_force(dict.fromkeys("abc", False)))
        assert asked(f"{url}/v1/contracts", {"contracts": [{**contracts[1], "shadow": True}]}) is not None
        wait_until("no change", stats, in_force({"a": False, "b": True, "c": False}))
        assert httpx.delete(f"{url}/v1/contracts/c/*", trust_env=False).status_code == 204
        wait_until("it is there yet", stats, in_force({"a": False, "b": True}))


def test_what_the_old_version_wrote_goes_on_under_the_new_one(old: Path, tmp_path: Path) -> None:
    address, tcp, http = pick_addresses(3)
    url, data = f"http://{address}", tmp_path / "b"
    data.mkdir()
    distributor = ["distributor", "--http-address", address, "--store", f"sqlite:///{tmp_path / 'store.sqlite3'}"]
    broker = ["broker", "--name", "b", "--mcap", "1000", "--distributor", url, "--data-path", str(data)]
    broker += ["--tcp-address", tcp, "--http-address", http]

    def shares_are_applied(topic: Any) -> bool:
        return topic["brokers"] and all(one["applied_version"] == one["share_version"] for one in topic["brokers"])

    with ExitStack() as brokers:  # the distributor is upgraded first, then the broker
        with service(old, tmp_path, *distributor):
            brokers.enter_context(service(old, data, *broker))
            wait_until("no broker", f"{url}/v1/brokers", lambda found: any(one["alive"] for one in found))
            assert asked(f"{url}/v1/topics", TOPIC) is not None
            wait_until("no share", f"{url}/v1/topics/roads", shares_are_applied)
        with service(ROOT, tmp_path, *distributor):
            wait_until("the old broker", f"{url}/v1/brokers", lambda found: found[0]["alive"])
            wait_until("its share", f"{url}/v1/topics/roads", shares_are_applied)
            brokers.close()
            with service(ROOT, data, *broker):
                wait_until("the new broker", f"{url}/v1/brokers", lambda found: found[0]["alive"])
                topic = wait_until("its share", f"{url}/v1/topics/roads", shares_are_applied)
                assert [(one["broker"], one["rate"]) for one in topic["brokers"]] == [("b", 200.0)]
