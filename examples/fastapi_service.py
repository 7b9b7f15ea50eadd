"""A web service that publishes what it is sent. One publisher serves all requests.

    python examples/fastapi_service.py [PORT [TOPIC [PUBLISHER_ID]]]      # or: hypercorn fastapi_service:app
    curl -d 17.5 http://127.0.0.1:8000/readings

`on_excess = "reject"` of a topic comes back as 429 with Retry-After, a missing cluster as 503.
"""

import asyncio
import math
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import fastapi
import hypercorn
import hypercorn.asyncio

import srtm

port, topic, publisher_id = (*sys.argv[1:], *("8000", "la-highways", "sensor-10")[len(sys.argv) - 1 :])


@asynccontextmanager
async def lifespan(app: fastapi.FastAPI) -> AsyncIterator[None]:
    async with srtm.Publisher(topic, publisher_id) as publisher:
        app.state.publisher = publisher
        yield


app = fastapi.FastAPI(lifespan=lifespan)


@app.post("/readings", status_code=202)
async def publish(request: fastapi.Request) -> dict[str, float | None]:
    try:
        async with asyncio.timeout(5):
            receipt = await request.app.state.publisher.publish(await request.body())
    except srtm.PublishRefused as refused:
        seconds = math.ceil((refused.retry_after_ms or 1000) / 1000)
        raise fastapi.HTTPException(429, str(refused), {"Retry-After": str(seconds)}) from None
    except srtm.BadInput as refused:
        raise fastapi.HTTPException(400, str(refused)) from None
    except TimeoutError:
        raise fastapi.HTTPException(503, "no broker answered within 5 s") from None
    return {"wait_ms": receipt.wait_ms}


if __name__ == "__main__":
    config = hypercorn.Config()
    config.bind = [f"127.0.0.1:{port}"]
    asyncio.run(hypercorn.asyncio.serve(app, config))
