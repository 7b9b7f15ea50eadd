"""A real Chromium for tests of pages: Debian's package ``chromium``."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PATIENCE_MS = 20_000
PHONE = {"width": 390, "height": 800}
MARKS = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not here: Debian's package chromium brings it"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # --no-sandbox: containers do not let root have one; the page is our own.
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@contextmanager
def page(browser: Browser, **given: object) -> Iterator[tuple[Page, list[str]]]:
    """A page, and what its console complained about."""
    context = browser.new_context(**given)  # type: ignore[arg-type]  # of Playwright's many options
    context.set_default_timeout(PATIENCE_MS)
    opened, said = context.new_page(), []
    opened.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    opened.on("pageerror", lambda error: said.append(str(error)))
    yield opened, said
    context.close()


@contextmanager
def served(words: Sequence[str]) -> Iterator[str]:
    """The URL of a service that ``srtm`` with these words runs."""
    command = [sys.executable, "-m", "srtm", *words, "--http-address", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            address = process.stderr.readline().split("http=")[1].split()[0]
            rest = threading.Thread(target=process.stderr.read)  # a pipe that nobody reads would stop it
            rest.start()
            yield f"http://{address}"
        finally:
            process.terminate()
            process.wait(20)
            rest.join()
