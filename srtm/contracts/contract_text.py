"""Writes contracts as the text of a contract file, which reads back as the same contracts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from srtm.contracts.contract import Contract

_DEFAULTS = {
    "mode": None,
    "on_partition": "go on",
    "gossip": "random",
    "frequency_analysis": False,
    "shadow": False,
    "starts": "full",
}


def contract_file_text(contracts: Iterable[Contract]) -> str:
    """Return the TOML of contracts."""
    return "\n".join(_contract(contract) for contract in contracts)


def _contract(contract: Contract) -> str:
    document = contract.to_json()
    lines = [
        f"{key} = {_value(value)}\n"
        for key, value in document.items()
        if key != "policies" and (key not in _DEFAULTS or value != _DEFAULTS[key])
    ]
    policies = "".join(f"  {{ {_inline(policy.to_json())} }},\n" for policy in contract.policies)
    return f"[[contracts]]\n{''.join(lines)}policies = [\n{policies}]\n"


def _inline(table: Mapping[str, object]) -> str:
    return ", ".join(f"{key} = {_value(value)}" for key, value in table.items())


def _value(value: object) -> str:
    """A value in TOML: of texts, numbers and truths it is as in JSON."""
    return json.dumps(value, ensure_ascii=False)
