"""What all routes of the limit service share, and how they read bodies."""

from __future__ import annotations

from typing import TypeVar

from fastapi import Request

from limiting.audit_log import AuditLog
from limiting.config import LimitConfig
from limiting.contract_store import ContractStore
from limiting.nodes.decisions import Decisions
from srtm.web.bodies import Budget, decoded, read_content

_T = TypeVar("_T")
_BODIES = 16  # of the largest size, that requests under way may hold together


class Parts:
    """What decides, its contracts, settings and audit log, of one service."""

    def __init__(
        self,
        decisions: Decisions,
        contracts: ContractStore,
        config: LimitConfig,
        audit: AuditLog | None = None,
    ) -> None:
        self.decisions = decisions
        self.limiter = decisions.limiter
        self.contracts = contracts
        self.config = config
        self.audit = audit or AuditLog()
        self._budget = Budget(_BODIES * config.max_body_bytes, "bytes of bodies")

    async def body(self, request: Request, kind: type[_T]) -> _T:
        """Decode the JSON body of a request as ``kind``. Raises BadInput, Unavailable."""
        config = self.config
        return decoded(await read_content(request, self._budget, config.max_body_bytes, config.body_timeout_s), kind)
