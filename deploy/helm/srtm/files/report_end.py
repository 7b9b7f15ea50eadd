"""Tells the distributor that the earlier process of this pod's broker has ended. The pod starts in any case."""

import json
import os
import pathlib
import urllib.error
import urllib.request

incarnation = pathlib.Path("/var/lib/srtm/srtm.incarnation")
if incarnation.exists():
    request = urllib.request.Request(
        f"{os.environ['SRTM_DISTRIBUTOR']}/v1/brokers/{os.environ['POD_NAME']}/dead",
        json.dumps({"incarnation": incarnation.read_text().strip(), "reason": "its pod was started again"}).encode(),
        {"Authorization": f"Bearer {os.environ['SRTM_TOKEN']}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            print("the distributor was told:", answer.status)
    except urllib.error.HTTPError as error:  # it does not know this broker, or a later process of it
        print("the distributor refused:", error.code, error.read().decode(errors="replace"))
    except OSError as error:
        print("the distributor was not told:", error)
