"""A web API that holds each client to a contract.

    python examples/fastapi_limits.py [PORT]
    curl -i http://127.0.0.1:8000/readings

This process decides by contracts.toml. With $SRTM_LIMIT set, the limit service there decides: `srtm limit serve`.
"""

import asyncio
import os
import sys
from pathlib import Path

import fastapi
import hypercorn
import hypercorn.asyncio

from srtm.limiting.asgi import LimitMiddleware
from srtm.limiting.local import LocalLimits
from srtm.limiting.remote import RemoteLimits

port = sys.argv[1] if len(sys.argv) > 1 else "8000"
contracts = Path(__file__).with_name("contracts.toml")
limits = RemoteLimits() if "SRTM_LIMIT" in os.environ else LocalLimits.of_file(contracts)

app = fastapi.FastAPI()
app.add_middleware(LimitMiddleware, limits=limits, namespace="api")


@app.get("/readings")
async def readings() -> list[float]:
    return [17.5, 17.6, 17.8]


if __name__ == "__main__":
    config = hypercorn.Config()
    config.bind = [f"127.0.0.1:{port}"]
    asyncio.run(hypercorn.asyncio.serve(app, config))
