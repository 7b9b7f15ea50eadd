"""A distributor, nsqlookupd or broker for tests of our HTTP clients: h11 on trio streams, one request at a time."""

from contextlib import suppress

import h11
import trio

from broker.admin.forwarded_requests import answer_headers, request
from srtm.log import Log
from srtm.net.http_server import respond


async def serve_http(nursery, handler, context=None):
    """The address, HOST:PORT, at which ``handler`` answers; over TLS where there is a ``context``."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    if context is not None:
        listeners = [trio.SSLListener(listener, context, https_compatible=True) for listener in listeners]
    nursery.start_soon(HttpServer(handler).serve, listeners)
    return f"127.0.0.1:{port}"


class HttpServer:
    """Answers as ``handler`` says; ``lines``: what it logged."""

    def __init__(self, handler):
        self._handler = handler
        self.lines = []

    async def serve(self, listeners):
        await trio.serve_listeners(self.serve_connection, listeners)

    async def serve_connection(self, stream):
        """Until the client ends it."""
        connection = h11.Connection(h11.SERVER)
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):  # the client went away: nobody to tell
            await self._answer_all(connection, stream)

    async def _answer_all(self, connection, stream):
        async with stream:
            while (asked := await self._next_request(connection, stream)) is not None:
                answer = await respond(self._handler, asked, Log("server", self.lines.append))
                headers = [("Content-Length", str(len(answer.body))), *answer_headers(answer)]
                out = connection.send(h11.Response(status_code=answer.status, headers=headers))
                await stream.send_all(out + connection.send(h11.Data(data=answer.body)))
                connection.send(h11.EndOfMessage())
                connection.start_next_cycle()

    async def _next_request(self, connection, stream):
        head, body = None, b""
        while True:
            match connection.next_event():
                case h11.Request() as head:
                    pass
                case h11.Data(data=data):
                    body += data
                case h11.EndOfMessage():
                    headers = [(name.decode(), value.decode()) for name, value in head.headers]
                    return request(head.method.decode(), head.target.decode(), headers, body)
                case h11.ConnectionClosed():
                    return None
                case h11.NEED_DATA:
                    connection.receive_data(await stream.receive_some(65536))
