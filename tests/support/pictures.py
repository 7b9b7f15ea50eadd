"""The pictures of the pages that documents show: ``python -m tests.support.pictures``, with Debian's ``chromium``.

A cluster of three brokers runs for two minutes with invented traffic. Each picture comes light, as the documents have
it; with ``--all FOLDER`` also dark and as on a phone, to be looked at.
"""

from __future__ import annotations

import csv
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from playwright.sync_api import Browser, Page, sync_playwright

from tests.support.chromium import CHROMIUM, PHONE, served
from tests.support.ports import pick_addresses

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"
DESK = {"width": 1280, "height": 860}
WARM_S = 75  # until the last 60 s are those of the traffic
SRTM = (sys.executable, "-m", "srtm")
SLO = {"percentile": 99, "latency_ms": 50}
POLICIES = [
    {"name": "burst", "rate": 12, "burst": 20},
    {"name": "daily", "kind": "window", "quota": 20_000, "window": "1d", "aligned": True},
]


def highways() -> dict[str, object]:
    """The detectors of Los Angeles, each with a message in 5 s."""
    with (ROOT / "bench" / "data" / "la-highways.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    columns = {
        "ids": [row["id"] for row in rows],
        "rates": [0.2] * len(rows),
        "latitudes": [float(row["latitude"]) for row in rows],
        "longitudes": [float(row["longitude"]) for row in rows],
    }
    return {"rate": 60, "burst": 30, "slo": SLO, "placement": "lb", "publishers": [columns]}


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """The URL of its distributor."""
    [address] = pick_addresses(1)
    words = ["up", "--brokers", "3", "--mqtt", "--data", str(folder), "--http-address", address]
    with subprocess.Popen([*SRTM, *words], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert "ready" in process.stdout.readline()
            yield f"http://{address}"
        finally:
            process.terminate()
            process.wait(60)


@contextmanager
def traffic(url: str) -> Iterator[None]:
    """Publishers of ``parking``, which send more than its rate; and ``srtm bench topic`` for the others."""
    over = threading.Event()

    def park() -> None:
        places: dict[str, str] = {}
        turn = 0
        with httpx.Client() as http:
            while not over.wait(1 / 45):
                name = f"bay-{min(turn % 7, turn % 5)}"  # some send more than others
                turn += 1
                if name not in places:
                    found = http.get(f"{url}/v1/topics/parking/publishers/{name}").json()
                    places[name] = http.get(f"{url}/v1/brokers/{found['broker']}").json()["http_address"]
                http.post(f"http://{places[name]}/pub", params={"topic": "parking", "publisher": name}, content=b"free")

    thread = threading.Thread(target=park)
    thread.start()
    benches = [
        subprocess.Popen(
            [*SRTM, "bench", "topic", name, "--seconds", "600", "--distributor", url], stdout=subprocess.DEVNULL
        )
        for name in ("la-highways", "meters")
    ]
    try:
        yield
    finally:
        over.set()
        thread.join()
        for bench in benches:
            bench.terminate()
            bench.wait(60)


class Camera:
    """Takes each picture light; into ``folder``, if there is one, also dark and as on a phone."""

    def __init__(self, browser: Browser, folder: Path | None) -> None:
        self._pages = {"": (IMAGES, browser.new_page(viewport=DESK))}
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._pages["-dark"] = folder, browser.new_page(viewport=DESK, color_scheme="dark")
            self._pages["-phone"] = folder, browser.new_page(viewport=PHONE, color_scheme="dark", device_scale_factor=2)

    def take(self, name: str, address: str, waits_for: str, *, height: int | None = None, part: str = "") -> None:
        """The page at ``address`` once it shows ``waits_for``: ``part`` of it, or all down to ``height``."""
        for suffix, (folder, page) in self._pages.items():
            page.goto(address)
            page.get_by_text(waits_for).first.wait_for()
            page.wait_for_timeout(7_000)  # two looks, so that there are rates
            self._save(page, folder / f"{name}{suffix}.png", None if suffix else height, part)

    @staticmethod
    def _save(page: Page, file: Path, height: int | None, part: str) -> None:
        if part:
            page.locator(part).screenshot(path=file)
        elif height is None:
            page.screenshot(path=file, full_page=True)
        else:
            page.screenshot(path=file, full_page=True, clip={"x": 0, "y": 0, "width": DESK["width"], "height": height})


def pictures_of_a_cluster(camera: Camera) -> None:
    with tempfile.TemporaryDirectory() as folder, cluster(Path(folder)) as url:
        contract = {"namespace": "per-bay", "subject": "*", "policies": POLICIES}
        httpx.post(f"{url}/v1/contracts", json={"contracts": [contract]}).raise_for_status()
        bays = [{"count": 20, "rate": 1, "id_prefix": "bay-"}]
        parking = {"rate": 30, "burst": 10, "slo": SLO, "publishers": bays, "contracts": {"publishers": "per-bay"}}
        meters = {"rate": 30, "burst": 20, "slo": SLO, "publishers": [{"count": 12, "rate": 1}]}
        for name, topic in (("la-highways", highways()), ("parking", parking), ("meters", meters)):
            httpx.put(f"{url}/v1/topics/{name}", json=topic, timeout=60).raise_for_status()
        with traffic(url):
            threading.Event().wait(WARM_S)
            camera.take("page-topics", f"{url}/#/", "parking", height=560)
            camera.take("page-topic", f"{url}/#/topics/parking", "Demand and tokens", height=1060)
            camera.take("page-map", f"{url}/#/topics/la-highways", "publishers say where they are", part="figure.map")
            camera.take("page-broker", f"{url}/#/brokers/broker-1", "Topics and channels")
            camera.take("page-contract", f"{url}/#/contracts/per-bay/*", "bay-")


def picture_of_limits(camera: Camera) -> None:
    with served(["limit", "serve"]) as url:
        contract = {"policies": [{"name": "burst", "rate": 20, "burst": 40}, POLICIES[1]]}
        httpx.put(f"{url}/limit/v1/contracts/api/user:*", json=contract).raise_for_status()
        over = threading.Event()

        def ask() -> None:
            turn = 0
            with httpx.Client() as http:
                while not over.wait(0.01):
                    subject = f"user:{min(turn % 7, turn % 5, turn % 11)}"
                    turn += 1
                    http.post(f"{url}/limit/v1/check", json={"namespace": "api", "subject": subject})

        thread = threading.Thread(target=ask)
        thread.start()
        try:
            camera.take("limiting-contract", f"{url}/#/contracts/api/user%3A*", "user:1")
        finally:
            over.set()
            thread.join()


def main(words: list[str]) -> None:
    folder = Path(words[1]) if words[:1] == ["--all"] else None
    with sync_playwright() as playwright:
        # --no-sandbox: containers do not let root have one; the pages are our own.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        camera = Camera(browser, folder)
        pictures_of_a_cluster(camera)
        picture_of_limits(camera)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
