"""The split loop: the adaptor, run by the leader. It stands back while somebody else proposes shares."""

from __future__ import annotations

from adaptor.service import Adaptor
from distributor.registry.registry import Registry
from distributor.sync.history_store import HistoryStore
from distributor.sync.split_owner import SplitOwner
from srtm.control import HistoryAnswer, ProposalResult, ProposalResults, ShareProposal
from srtm.log import Log

_NOT_OWN = "somebody else proposes shares (PUT /v1/shares in the last 10 s)"


def split_loop(registry: Registry, histories: HistoryStore, owner: SplitOwner, log: Log) -> Adaptor:
    """``run`` it beside the registry."""
    return Adaptor(_InProcess(registry, histories, owner), log)


class _InProcess:
    """The distributor, as the adaptor asks it (``adaptor.service.Distributor``), without HTTP."""

    def __init__(self, registry: Registry, histories: HistoryStore, owner: SplitOwner) -> None:
        self._registry = registry
        self._histories = histories
        self._owner = owner

    async def history(self, since: int, wait_s: float, ignored: int) -> HistoryAnswer:
        """What brokers reported since, once shares belong to this loop. Raises NotLeader."""
        await self._owner.wait_own_loop()
        answer = await self._histories.answer(since, wait_s)
        self._histories.ignored_by_adaptors += ignored
        return answer

    async def propose_shares(self, proposals: list[ShareProposal]) -> ProposalResults:
        """What became of each. Raises Unavailable (the store)."""
        if not self._owner.is_own_loop:
            return ProposalResults(
                results=[ProposalResult(topic=one.topic, taken=False, problem=_NOT_OWN) for one in proposals]
            )
        return await self._registry.adapt(proposals)
