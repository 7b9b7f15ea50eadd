"""Which contracts hold for a topic's clients: the table ``[contracts]``, and the key ``contract`` of publishers. Pure.

A contract is known by its namespace; the subject is who is held to it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated

from pydantic import AfterValidator

from srtm.topics.schema import Schema

LONGEST = 255  # bytes of a namespace, or of a tenant's name
TENANTS = "tenants"  # the namespace whose subjects are tenants


@dataclass(frozen=True, kw_only=True)
class ContractNames:
    """``publishers``: the namespace of publishers whose block names none, and of undeclared ones.

    ``consumers``: that of all consumers.
    ``tenant``: whose topic it is, a subject of the namespace ``tenants``. All topics of a tenant share its contract.
    """

    publishers: str = ""  # "": none
    consumers: str = ""
    tenant: str = ""

    def to_json(self) -> dict[str, object]:
        """Return the table that ``contract_names`` turns into this."""
        return asdict(self)


def _name(value: str) -> str:
    if value and (len(value.encode(errors="surrogatepass")) > LONGEST or not value.isprintable()):
        raise ValueError(f'must be printable text of at most {LONGEST} bytes, or ""')
    return value


ContractName = Annotated[str, AfterValidator(_name)]  # "": none


class ContractsTable(Schema):
    """``[contracts]`` of a topic file."""

    publishers: ContractName = ""
    consumers: ContractName = ""
    tenant: ContractName = ""


def contract_names(table: ContractsTable) -> ContractNames:
    """Return what a checked table says."""
    return ContractNames(publishers=table.publishers, consumers=table.consumers, tenant=table.tenant)
