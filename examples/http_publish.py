"""Publish lines of standard input by HTTP, with the standard library alone, to a broker of the topic.

    printf '17.5\n18.0\n' | python examples/http_publish.py [TOPIC]

Finds a broker as nsqlookupd's clients do. A publisher without an id counts as undeclared: it shares the tokens of
the broker that it meets. The distributor is $SRTM_DISTRIBUTOR, or http://127.0.0.1:4190.
"""

import json
import os
import sys
from urllib.parse import quote
from urllib.request import urlopen

topic = quote(sys.argv[1] if len(sys.argv) > 1 else "la-highways", safe="")
distributor = os.environ.get("SRTM_DISTRIBUTOR", "http://127.0.0.1:4190")

with urlopen(f"{distributor}/lookup?topic={topic}", timeout=10) as answer:
    broker = json.load(answer)["producers"][0]
address = f"http://{broker['broadcast_address']}:{broker['http_port']}"
with urlopen(f"{address}/mpub?topic={topic}", sys.stdin.buffer.read(), timeout=10) as answer:  # a message a line
    print(f"{broker['hostname']} at {address} says {answer.read().decode()}")
