"""Eclipse Paho's interoperability suites, whose own command line does not run: ``client_test`` is of 3.1.1, and
``client_test5`` of 5.0."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
import time
import unittest
import warnings
from typing import Any

from tests.interop.outcome import Outcome
from tests.interop.processes import directory_of_suite, report

_NAMES = ("TopicA", "TopicA/B", "Topic/C", "TopicA/C", "/TopicA")
_PATTERNS = ("TopicA/+", "+/C", "#", "/#", "/+", "+/+", "TopicA/#")


class Outcomes(unittest.TestResult):
    """An outcome for each test."""

    def __init__(self) -> None:
        super().__init__()
        self.outcomes: list[Outcome] = []
        self._started = 0.0

    def startTest(self, test: unittest.TestCase) -> None:  # noqa: N802 - unittest's name
        super().startTest(test)
        self._started = time.monotonic()

    def stopTest(self, test: unittest.TestCase) -> None:  # noqa: N802
        super().stopTest(test)
        said = [text for failed, text in (*self.failures, *self.errors) if failed is test]
        why = said[-1].strip().rpartition("\n")[2] if said else ""
        name = test.id().rpartition(".")[2]
        self.outcomes.append(Outcome(name, not said, time.monotonic() - self._started, why))


def run(name: str, prefix: str) -> list[Outcome]:
    """The suite ``name``, with what its ``__main__`` would have set."""
    suite: Any = importlib.import_module(name)
    suite.host, suite.port = "127.0.0.1", int(os.environ["MQTT_PORT"])
    suite.topic_prefix = prefix
    suite.topics = [prefix + one for one in _NAMES]
    suite.wildtopics = [prefix + one for one in _PATTERNS]
    suite.nosubscribe_topics = (os.environ["MQTT_DENIED"],)
    result = Outcomes()
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        unittest.defaultTestLoader.loadTestsFromModule(suite).run(result)
    return result.outcomes


if __name__ == "__main__":
    sys.path.insert(0, str(directory_of_suite() / "source" / "interoperability"))
    version = sys.argv[1]
    report(run("client_test5", "client_test5/") if version == "5.0" else run("client_test", ""))
