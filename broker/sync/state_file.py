"""The file with the desired state that a later incarnation of this broker starts from."""

from __future__ import annotations

from pathlib import Path

import msgspec

from broker.runtime.data_directory import replace_file
from srtm.control import BrokerContracts, DesiredTopic
from srtm.net.json_file import read_json

STATE_FILE = "srtm.state.json"


class SyncState(msgspec.Struct, frozen=True):
    """What a later incarnation has to know."""

    has_synced: bool = False  # this broker is a member of a cluster that it has reached before
    version: int = 0  # of the desired state
    topics: list[DesiredTopic] = []  # topics with a limit, without their shares and publishers (``held_over``)
    cluster: int = 0  # identity of the store that all of this is from; 0: an earlier version did not ask
    peers: dict[str, str] = {}  # {broker: incarnation} of the cluster
    peer_claims: dict[str, list[str]] = {}  # {one of them: what it alone can hold}
    contracts: BrokerContracts = BrokerContracts(version=0)


def load_state(directory: Path) -> SyncState:
    """Raises BadInput if the file is not one of this broker: without it, limited topics would flow unlimited."""
    return read_json(directory / STATE_FILE, SyncState, "data_path", "this broker's last state") or SyncState()


def save_state(directory: Path, state: SyncState) -> None:
    """Raises OSError."""
    replace_file(directory / STATE_FILE, msgspec.json.encode(state))
