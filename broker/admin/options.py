"""``/config/NAME`` and ``/debug/freememory`` as nsqd has them (protocol section 13). Options are named by their key
in the TOML file. The nsqlookupds in use and the log level can be changed while the broker runs."""

from __future__ import annotations

import ctypes
import gc

import msgspec
import trio

from broker.admin.context import AdminContext
from broker.admin.nsqd_routes import Refused, nsq_answer, read
from broker.nsqd.options import BY_KEY, LOG_LEVEL, Value, from_config
from broker.stats.statsd import key_prefix
from srtm.errors import BadInput
from srtm.net.http_server import Request, Response, Router, json_response, text_response

LOOKUPS = "nsqlookupd_tcp_addresses"
_LEVEL = "log_level"
_STATSD_PREFIX = "statsd_prefix"


def add_option_routes(router: Router, context: AdminContext) -> None:
    routes = OptionRoutes(context)
    router.add("GET", "/config/{key}", nsq_answer(routes.show))
    router.add("PUT", "/config/{key}", nsq_answer(routes.change))
    router.add("POST", "/debug/freememory", nsq_answer(free_memory))


class OptionRoutes:
    def __init__(self, context: AdminContext) -> None:
        self._context = context

    async def show(self, _request: Request, key: str) -> Response:
        return self._shown(key)

    async def change(self, request: Request, key: str) -> Response:
        body = await read(request, self._context.settings.max_msg_size, "INVALID_VALUE")
        if not body:
            raise Refused(413, "INVALID_VALUE")
        try:
            if key == LOOKUPS:
                self._context.use_lookups(msgspec.json.decode(body, type=list[str]))
            elif key == _LEVEL:
                self._context.log_settings.level = LOG_LEVEL.read(body.decode())
            else:
                raise Refused(400, "INVALID_OPTION")
        except (ValueError, BadInput):
            raise Refused(400, "INVALID_VALUE") from None
        return self._shown(key)

    def _shown(self, key: str) -> Response:
        """Text without quotes, everything else as JSON."""
        if key not in BY_KEY:
            raise Refused(400, "INVALID_OPTION")
        shown = BY_KEY[key].kind.show(self._current(key))
        if shown == "":
            return Response()
        return text_response(shown) if isinstance(shown, str) else json_response(shown)

    def _current(self, key: str) -> Value:
        if key == LOOKUPS:
            return self._context.lookup_addresses()
        if key == _LEVEL:
            return self._context.log_settings.level
        given = from_config(self._context.config)[key]
        if key == _STATSD_PREFIX:
            return key_prefix(given, self._context.broadcast_address, self._current("broadcast_http_port"))
        return given or self._ports().get(key, given)

    def _ports(self) -> dict[str, int]:
        """The real ports, for options that are 0."""
        return {"broadcast_tcp_port": self._context.tcp_port, "broadcast_http_port": self._context.http_port}


async def free_memory(_request: Request) -> Response:
    """Return unused memory of the allocator to the system, as far as possible."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
    if trim is not None:
        await trio.to_thread.run_sync(trim, 0)
    return Response()
