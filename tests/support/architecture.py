"""The architecture as data: which package may import which, which are pure, and what is still to be mended.

A room is a package. A module at the root of a service (``broker.config``) and a ``__main__`` are rooms of their own,
because a service's root holds both its settings and what puts its parts together.
"""

from __future__ import annotations

SERVICES = ("srtm", "broker", "distributor", "adaptor", "limiting")
PACKAGES = (*SERVICES, "bench")

# Every room may import these. They import only each other.
FOUNDATION = ("srtm.errors", "srtm.log", "srtm.text", "srtm.units", "srtm.version")

# {room: the rooms that it imports}, lowest first. Rows of bench name rooms of bench only: it may import everything.
ARROWS = {
    # srtm: the kernel
    "srtm.concurrency": "",
    "srtm.protocol": "",
    "srtm.toml_text": "",
    "srtm.settings": "srtm.toml_text",
    "srtm.csv_table": "",
    "srtm.topics": "srtm.csv_table srtm.protocol srtm.toml_text",
    "srtm.control": "srtm.topics",
    "srtm.token_bucket": "srtm.topics",
    "srtm.contracts": "srtm.token_bucket srtm.toml_text srtm.topics",
    "srtm.net": "srtm.concurrency srtm.control",
    "srtm.web": "srtm.concurrency srtm.control srtm.net",
    "srtm.analysis": "srtm.csv_table srtm.net srtm.token_bucket srtm.topics",
    "srtm.client": "srtm.concurrency srtm.control srtm.net srtm.protocol",
    "srtm.limiting": "srtm._native srtm.client srtm.concurrency srtm.contracts",
    "srtm.blocking": "srtm.client srtm.protocol",
    "srtm.mqtt": "srtm.client srtm.concurrency srtm.net srtm.protocol",
    "srtm": "srtm.blocking srtm.client srtm.protocol",
    "srtm.cluster": "srtm.client srtm.concurrency srtm.control srtm.net",
    "srtm.console": "srtm.client srtm.concurrency srtm.control srtm.net",
    "srtm.operations": (
        "srtm.client srtm.cluster srtm.concurrency srtm.console srtm.contracts srtm.net srtm.settings srtm.topics "
        "srtm.web bench.commands broker.nsqd broker.options distributor.storage"
    ),
    "srtm.commands": (
        "srtm.analysis srtm.client srtm.cluster srtm.commands.mqtt srtm.console srtm.contracts srtm.control srtm.net "
        "srtm.operations srtm.toml_text srtm.topics "
        "adaptor.distributor_feed adaptor.service bench.commands bench.demo bench.harness.cluster_runs "
        "broker.__main__ broker.nsqd_main distributor.config distributor.fitting distributor.service "
        "limiting.config limiting.service"
    ),
    "srtm.commands.mqtt": "srtm.client srtm.console srtm.control",
    "srtm.cli": "srtm.cluster srtm.commands broker.__main__ broker.nsqd_main",
    "srtm.__main__": "srtm.cli",
    # broker: one broker's process
    "broker": "",
    "broker.events": "srtm._native",
    "broker.snapshot": "srtm._native",
    "broker.config": "srtm.control srtm.net",
    "broker.runtime": "broker.config srtm._native srtm.control srtm.net",
    "broker.stats": "broker.config broker.snapshot srtm._native srtm.control srtm.net srtm.protocol srtm.web",
    "broker.history": "broker.events broker.runtime srtm._native srtm.concurrency srtm.control srtm.net",
    "broker.nsqd": (
        "broker.config broker.events broker.runtime broker.snapshot srtm._native srtm.concurrency srtm.net "
        "srtm.protocol srtm.toml_text"
    ),
    "broker.leases": (
        "broker.history broker.snapshot adaptor.gdrl adaptor.observations adaptor.policies srtm._native srtm.control "
        "srtm.concurrency srtm.net "
        "srtm.protocol srtm.topics"
    ),
    "broker.links": (
        "broker.runtime broker.snapshot srtm._native srtm.concurrency srtm.control srtm.net srtm.protocol srtm.topics"
    ),
    "broker.sync": (
        "broker.config broker.leases broker.nsqd broker.runtime broker.snapshot broker.stats srtm._native "
        "srtm.concurrency srtm.control srtm.net srtm.protocol"
    ),
    "broker.admin": (
        "broker.config broker.leases broker.links broker.nsqd broker.runtime broker.snapshot broker.stats broker.sync "
        "srtm._native srtm.control srtm.net srtm.protocol"
    ),
    "broker.member": (
        "broker.config broker.history broker.leases broker.links broker.sync srtm._native srtm.control srtm.net"
    ),
    "broker.startup": "broker.config broker.events broker.runtime broker.sync srtm._native srtm.net",
    "broker.service": (
        "broker.access_files broker.admin broker.config broker.events broker.leases broker.links broker.member "
        "broker.nsqd broker.runtime broker.snapshot broker.startup broker.stats broker.sync srtm._native "
        "srtm.control srtm.net"
    ),
    "broker.process": "broker.config broker.service srtm.net",
    "broker.access_files": "broker.config srtm._native srtm.net",
    "broker.option_rows": "broker.config srtm.settings",
    "broker.flag_help": "",
    "broker.options": "broker.access_files broker.config broker.flag_help broker.option_rows srtm.net srtm.settings",
    "broker.__main__": "broker.options broker.process",
    "broker.nsqd_main": "broker.nsqd broker.process",
    # distributor
    "distributor": "",
    "distributor.model": "srtm.contracts srtm.token_bucket srtm.topics",
    "distributor.placement": "distributor.model srtm.control srtm.token_bucket srtm.topics",
    "distributor.storage": "distributor.model srtm.contracts srtm.topics srtm.web",
    "distributor.prediction": "distributor.model distributor.placement srtm.token_bucket srtm.topics",
    "distributor.fitting": (
        "distributor.model distributor.placement distributor.prediction srtm.token_bucket srtm.topics"
    ),
    "distributor.config": "distributor.fitting srtm.net",
    "distributor.registry": (
        "distributor.config distributor.model distributor.placement distributor.storage srtm.concurrency "
        "srtm.contracts srtm.control srtm.topics"
    ),
    "distributor.verdict": "srtm.control srtm.topics",
    "distributor.measuring": "distributor.fitting distributor.model distributor.prediction srtm.control",
    "distributor.sync": (
        "distributor.measuring distributor.model distributor.placement "
        "distributor.registry distributor.verdict srtm.analysis srtm.control srtm.protocol "
        "srtm.topics"
    ),
    "distributor.jobs": (
        "distributor.config distributor.fitting distributor.measuring distributor.model distributor.placement "
        "distributor.prediction distributor.registry distributor.sync distributor.verdict adaptor.service "
        "srtm.analysis srtm.cluster srtm.concurrency srtm.control srtm.topics"
    ),
    "distributor.views": (
        "distributor.fitting distributor.model distributor.prediction distributor.registry distributor.sync "
        "distributor.verdict srtm.contracts srtm.control srtm.token_bucket srtm.topics srtm.web"
    ),
    "distributor.page": (
        "distributor.model distributor.registry distributor.sync distributor.verdict distributor.views srtm.client "
        "srtm.concurrency srtm.control srtm.web"
    ),
    "distributor.api": (
        "distributor.config distributor.fitting distributor.jobs distributor.model distributor.page "
        "distributor.registry distributor.storage distributor.sync distributor.verdict distributor.views "
        "srtm.concurrency srtm.contracts srtm.control "
        "srtm.net srtm.protocol srtm.topics srtm.web"
    ),
    "distributor.leadership": (
        "distributor.api distributor.config distributor.fitting distributor.jobs distributor.page distributor.registry "
        "distributor.storage distributor.sync srtm.concurrency srtm.control"
    ),
    "distributor.service": (
        "distributor.config distributor.leadership distributor.registry distributor.storage srtm.concurrency srtm.net "
        "srtm.web"
    ),
    # adaptor
    "adaptor": "",
    "adaptor.observations": "",
    "adaptor.gdrl": "srtm.topics",
    "adaptor.policies": "adaptor.observations",
    "adaptor.distributor_feed": "srtm.control srtm.net",
    "adaptor.policy": "adaptor.observations adaptor.policies srtm.topics",
    "adaptor.topics": "adaptor.observations adaptor.policy srtm.control srtm.topics",
    "adaptor.service": "adaptor.topics srtm.concurrency srtm.control",
    # limiting
    "limiting": "",
    "limiting.config": "limiting.store srtm.contracts srtm.limiting srtm.net",
    "limiting.checks": "srtm.contracts srtm.limiting",
    "limiting.database": "srtm.net",
    "limiting.audit_log": "limiting.database srtm.web",
    "limiting.discovery": "limiting.config limiting.nodes srtm.client srtm.concurrency srtm.net",
    "limiting.watching": "",
    "limiting.usage": "limiting.contract_store limiting.database srtm.concurrency srtm.limiting",
    "limiting.contract_store": "limiting.database limiting.nodes srtm.concurrency srtm.contracts srtm.web",
    "limiting.envoy": "srtm.contracts srtm.limiting",
    "limiting.envoy_checks": "limiting.contract_store limiting.envoy limiting.nodes srtm.limiting",
    "limiting.listeners": "srtm.net srtm.web",
    "limiting.grpc_server": "limiting.envoy limiting.listeners srtm.net",
    "limiting.redis_server": "limiting.listeners srtm._native srtm.limiting srtm.net",
    "limiting.http_server": "limiting.config limiting.listeners limiting.nodes srtm._native srtm.net srtm.web",
    "limiting.api": (
        "limiting.audit_log limiting.checks limiting.config limiting.contract_store limiting.database limiting.envoy "
        "limiting.envoy_checks limiting.nodes "
        "limiting.watching srtm.concurrency srtm.contracts srtm.limiting srtm.net srtm.web"
    ),
    "limiting.service": (
        "limiting.api limiting.audit_log limiting.config limiting.contract_store limiting.database limiting.discovery "
        "limiting.envoy limiting.envoy_checks "
        "limiting.grpc_server limiting.http_server limiting.listeners limiting.nodes limiting.redis_server "
        "limiting.store limiting.usage "
        "srtm.client srtm.concurrency srtm.contracts srtm.limiting srtm.net srtm.web"
    ),
    "limiting.nodes": (
        "limiting.checks limiting.config limiting.replication limiting.replication.gossiped limiting.store "
        "limiting.watching limiting.wire srtm.concurrency srtm.contracts srtm.limiting srtm.net srtm.token_bucket "
        "srtm.web"
    ),
    "limiting.replication": "srtm._native srtm.contracts srtm.token_bucket",
    "limiting.replication.gossiped": "limiting.replication srtm.token_bucket",
    "limiting.store": "srtm.contracts srtm.limiting srtm.net",
    "limiting.wire": "limiting.replication limiting.replication.gossiped",
    # bench
    "bench": "",
    "bench.data": "",
    "bench.harness": "",
    "bench.harness.machine": "",
    "bench.harness.systems": "bench.harness.machine",
    "bench.testbed.net": "bench.harness.machine",
    "bench.harness.results": "bench.harness.machine bench.harness.systems",
    "bench.harness.load": "bench.harness.machine bench.harness.results bench.harness.systems",
    "bench.console": "bench.harness.load bench.harness.results",
    "bench.harness.cluster_runs": "bench.harness.load bench.harness.machine bench.harness.results",
    "bench.comparisons.rows": (
        "bench.harness.cluster_runs bench.harness.load bench.harness.machine bench.harness.results "
        "bench.harness.systems"
    ),
    "bench.demo": "bench.console bench.data bench.harness.cluster_runs bench.harness.load bench.harness.results",
    "bench.experiments.steps": "bench.harness.cluster_runs bench.harness.load bench.harness.results",
    "bench.limiting": "",
    "bench.limit_peers": "bench.harness.systems",
    "bench.limit_cluster": "bench.harness.systems bench.limit_peers",
    "bench.scenarios": "bench.console bench.harness.load bench.harness.results bench.harness.systems",
    "bench.simulation": "bench.data bench.harness.cluster_runs bench.harness.results",
    "bench.testbed.probes": "bench.harness.cluster_runs bench.harness.load bench.harness.machine bench.testbed.net",
    "bench.comparisons": "bench.comparisons.rows bench.harness.machine bench.harness.results",
    "bench.comparisons.peers": (
        "bench.comparisons.rows bench.harness.load bench.harness.results bench.harness.systems"
    ),
    "bench.experiments.lab": (
        "bench.harness.cluster_runs bench.harness.load bench.harness.results bench.harness.systems bench.simulation"
    ),
    "bench.testbed": (
        "bench.console bench.harness.cluster_runs bench.harness.load bench.harness.machine "
        "bench.harness.results bench.testbed.net bench.testbed.probes"
    ),
    "bench.comparisons.hostile": (
        "bench.comparisons bench.comparisons.rows bench.console bench.harness.load bench.harness.machine "
        "bench.harness.results bench.harness.systems"
    ),
    "bench.comparisons.mqtt": (
        "bench.comparisons.rows bench.harness.load bench.harness.machine bench.harness.results bench.harness.systems"
    ),
    "bench.comparisons.tables": (
        "bench.comparisons bench.comparisons.mqtt bench.comparisons.rows bench.console bench.harness.results "
        "bench.harness.systems"
    ),
    "bench.experiments.figures": (
        "bench.data bench.experiments.lab bench.harness.cluster_runs bench.harness.results bench.simulation"
    ),
    "bench.experiments.limits": (
        "bench.experiments.lab bench.harness.results bench.harness.systems bench.limit_cluster bench.limit_peers "
        "bench.limiting"
    ),
    "bench.experiments.promises": (
        "bench.data bench.experiments.lab bench.harness.cluster_runs bench.harness.load bench.harness.results"
    ),
    "bench.experiments.table1": (
        "bench.comparisons.rows bench.experiments.lab bench.harness.cluster_runs bench.harness.load "
        "bench.harness.results bench.simulation"
    ),
    "bench.experiments": (
        "bench.experiments.figures bench.experiments.lab bench.experiments.limits bench.experiments.promises "
        "bench.harness.load bench.harness.results bench.simulation"
    ),
    "bench.commands": (
        "bench.comparisons.hostile bench.comparisons.peers bench.comparisons.rows bench.comparisons.tables "
        "bench.console bench.experiments bench.experiments.lab bench.experiments.steps "
        "bench.experiments.table1 bench.harness.machine bench.harness.results bench.harness.systems "
        "bench.scenarios bench.testbed"
    ),
}

# Numbers or bytes in, values out: no event loop, no sockets, no HTTP, no store, no clock.
PURE = (
    "srtm.errors",
    "srtm.csv_table",
    "srtm.text",
    "srtm.units",
    "srtm.version",
    "srtm.protocol",
    "srtm.topics",
    "srtm.control",
    "srtm.token_bucket",
    "srtm.contracts",
    "srtm.analysis",
    "broker.config",
    "broker.events",
    "broker.snapshot",
    "distributor.config",
    "distributor.model",
    "distributor.placement",
    "distributor.prediction",
    "distributor.fitting",
    "distributor.verdict",
    "distributor.views",
    "adaptor.observations",
    "adaptor.gdrl",
    "adaptor.policies",
    "adaptor.policy",
    "adaptor.topics",
    "limiting.envoy",
    "limiting.replication",
    "limiting.replication.gossiped",
    "limiting.wire",
    "bench.data",
    "bench.limiting",
    "bench.simulation",
    "bench.experiments.lab",
)

# Pure modules of packages that are not pure as a whole.
PURE_MODULES = (
    "srtm.console.conditions",
    "srtm.operations.machine_checks",
    "broker.runtime.cpu_throttling",
    "broker.sync.differences",
    "broker.sync.measurement_report",
    "broker.sync.reports",
    "broker.sync.told_publishers",
    "distributor.registry.broker_updates",
    "distributor.registry.desired_state",
    "distributor.measuring.messages",
    "distributor.sync.misplaced_publishers",
    "distributor.sync.release_rates",
    "limiting.store.address",
    "srtm.limiting.breaker",
    "limiting.store.grants",
    "limiting.store.rules",
    "bench.harness.load.histogram_files",
    "bench.harness.load.validity",
    "bench.harness.load.workload",
    "bench.testbed.net.layout",
    "bench.testbed.net.shaping",
)

MAX_MODULES = 14  # of a package, without __init__.py
LARGER_PACKAGES: dict[str, int] = {}  # {package: its own limit}

# Module names that one service may use more than once.
FREE_NAMES = {"config", "service", "options", "errors", "view", "document", "run", "policy", "traffic"}
