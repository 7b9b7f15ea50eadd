"""go-nsq's own tests, with the nsqlookupd and the nsqd that its ``test.sh`` starts for all of them."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from tests.interop.outcome import from_go
from tests.interop.processes import directory_of_suite, report, running

NSQD = (
    "--lookupd-tcp-address=127.0.0.1:4160",
    "--tls-cert=./test/server.pem",
    "--tls-key=./test/server.key",
    "--tls-root-ca-file=./test/ca.pem",
)


def main() -> None:
    directory = directory_of_suite()
    with tempfile.TemporaryDirectory() as data:
        lookupd = running("nsqlookupd", ping="http://127.0.0.1:4161/ping", directory=Path(data))
        nsqd = running("nsqd", f"--data-path={data}", *NSQD, ping="http://127.0.0.1:4151/ping", directory=directory)
        with lookupd, nsqd:
            command = [str(directory / "suite.test"), "-test.v", "-test.timeout=60s"]
            ended = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    report(from_go(ended.stdout))


if __name__ == "__main__":
    main()
