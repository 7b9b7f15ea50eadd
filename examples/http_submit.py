"""Submit a topic by HTTP, with the standard library alone, and print where its publishers went.

    python examples/http_submit.py [NAME]

The distributor is $SRTM_DISTRIBUTOR, or http://127.0.0.1:4190; its token, if it asks for one, $SRTM_TOKEN.
The same call again changes nothing.
"""

import json
import os
import sys
from urllib.request import Request, urlopen

name = sys.argv[1] if len(sys.argv) > 1 else "thermometers"
distributor = os.environ.get("SRTM_DISTRIBUTOR", "http://127.0.0.1:4190")
topic = {
    "name": name,
    "rate": 120,
    "burst": 10,
    "slo": {"percentile": 99, "latency_ms": 20},
    "publishers": [{"count": 100, "rate": 1, "id_prefix": "thermometer-"}],
}

request = Request(f"{distributor}/v1/topics/{name}", json.dumps(topic).encode(), method="PUT")
request.add_header("Content-Type", "application/json")
if token := os.environ.get("SRTM_TOKEN"):
    request.add_header("Authorization", f"Bearer {token}")
with urlopen(request, timeout=30) as answer:
    view = json.load(answer)
print(f"{view['name']}: {view['state']}; {view['reason']}")
for broker in view["brokers"]:
    share = f"{broker['rate']:,.1f} msg/s, burst {broker['burst']:,.1f}"
    print(f"  {broker['broker']} at {broker['address']}: {broker['publishers']} publishers, share {share}")
