"""``--config``: which keys and which kinds of values the TOML file may have."""

from __future__ import annotations

from pathlib import Path

from tests.interop.drop_in.session import Play, Sessions
from tests.interop.drop_in.sessions.flags import shown, start

SESSIONS = Sessions()
_FULL = """
# every kind of value
id = 9
log_level = "warn"
log_prefix = "[f] "
broadcast_address = "there"
nsqlookupd_tcp_addresses = ["127.0.0.1:1", "127.0.0.1:2"]
mem_queue_size = 5
msg_timeout = "7s"
max_msg_timeout = "8m"
max_req_timeout = 5000
max_rdy_count = 12
deflate = false
snappy = true
max_deflate_level = 4
tls_min_version = "tls1.2"
tls_required = false
statsd_interval = "10s"
statsd_mem_stats = false
e2e_processing_latency_percentiles = [0.9, 0.5]
e2e_processing_latency_window_time = "1m"
queue_scan_selection_count = 7
"""
_FILES = {
    "empty": "",
    "comment": "# nothing\n",
    "not TOML": "this is no TOML\n",
    "key twice": "id = 1\nid = 2\n",
    "section": "[nsqd]\nid = 1\n",
    "unknown key": "frobnicate = 3\n",
    "flag's spelling": 'msg-timeout = "3s"\n',
    "number for text": "broadcast_address = 5\n",
    "text for number": 'max_rdy_count = "12"\n',
    "letters for number": 'max_rdy_count = "x"\n',
    "float for number": "max_rdy_count = 1.5\n",
    "truth for number": "max_rdy_count = true\n",
    "list for number": "max_rdy_count = [1]\n",
    "number for duration": "msg_timeout = 3000\n",
    "digits for duration": 'msg_timeout = "3000"\n',
    "letters for duration": 'msg_timeout = "never"\n',
    "truth for duration": "msg_timeout = true\n",
    "text for truth": 'snappy = "true"\n',
    "letters for truth": 'snappy = "maybe"\n',
    "number for truth": "snappy = 1\n",
    "text for list": 'nsqlookupd_tcp_addresses = "127.0.0.1:1"\n',
    "numbers in list": "nsqlookupd_tcp_addresses = [1]\n",
    "bad level": 'log_level = "loud"\n',
    "bad version": 'tls_min_version = "ssl3"\n',
    "bad requirement": 'tls_required = "maybe"\n',
    "requirement as text": 'tls_required = "tcp-https"\n',
    "bad percentile": "e2e_processing_latency_percentiles = [2.0]\n",
    "percentiles as text": 'e2e_processing_latency_percentiles = "0.5,0.9"\n',
    "percentile as number": "e2e_processing_latency_percentiles = 0.5\n",
    "node out of range": "id = 5000\n",
    "data path that is not there": 'data_path = "/no/such"\n',
}


@SESSIONS.add("config file")
async def files(play: Play) -> None:
    for number, (label, text) in enumerate(_FILES.items()):
        path = _written(play, f"{number}.toml", text)
        await start(play, label, [f"--config={path}"], 2000 + number)
    path = _written(play, "relative.toml", "id = 3\n")
    await start(play, "twice", [f"--config={path}", f"-config={path}"], 3000)


@SESSIONS.add("config file: what counts", "--config=FILE", "--max-rdy-count=20", alone=True)
async def counts(play: Play) -> None:
    await shown(play)


def _written(play: Play, name: str, text: str) -> Path:
    path = play.node.folder / name
    path.write_text(text)
    return path


def full_file(folder: Path) -> Path:
    """Stands for FILE in a session's flags."""
    path = folder / "full.toml"
    path.write_text(_FULL)
    return path
