"""The Helm chart: its values, what it renders where helm is here, and the script of its brokers."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.support.deployed_commands import unknown_words

CHART = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "srtm"
TEMPLATES = sorted((CHART / "templates").iterdir())
KUBERNETES = "1.31.0"
KUBECONFORM = os.environ.get("KUBECONFORM") or shutil.which("kubeconform")
HELM = os.environ.get("HELM") or shutil.which("helm")
FULL = ("--set", "limit.enabled=true", "--set", "broker.extraArgs={--realtime}")
needs_helm = pytest.mark.skipif(HELM is None, reason="helm is not installed here ($HELM names one)")


def values() -> dict[str, Any]:
    found = yaml.safe_load((CHART / "values.yaml").read_text())
    assert isinstance(found, dict)
    return found


def leaves(tree: dict[str, Any], above: str = "") -> set[str]:
    """Paths of all values, those of sections too."""
    found = set()
    for key, value in tree.items():
        found.add(f"{above}.{key}")
        found |= leaves(value, f"{above}.{key}") if isinstance(value, dict) else set()
    return found


def test_templates_and_values_name_the_same_values() -> None:
    used = {path for file in TEMPLATES for path in re.findall(r"\.Values((?:\.\w+)+)", file.read_text())}
    known = leaves(values())
    assert used - known == set()
    unused = {path for path in known if not any(path.startswith(each) or each.startswith(path) for each in used)}
    assert unused == set()


@pytest.mark.parametrize("file", TEMPLATES, ids=lambda file: file.name)
def test_blocks_of_a_template_are_closed(file: Path) -> None:
    words = re.findall(r"\{\{-? *(if|with|range|define|end)\b", file.read_text())
    assert words.count("end") == len(words) - words.count("end")


def rendered(*options: str) -> list[dict[str, Any]]:
    assert HELM is not None
    command = [HELM, "template", "it", str(CHART), "--kube-version", KUBERNETES, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


@needs_helm
@pytest.mark.slow
def test_helm_finds_nothing_wrong() -> None:
    assert HELM is not None
    done = subprocess.run(
        [HELM, "lint", "--strict", str(CHART)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout


@needs_helm
@pytest.mark.slow
def test_what_is_rendered_is_a_cluster() -> None:
    documents = rendered(*FULL)
    kinds = sorted((document["kind"], document["metadata"]["name"]) for document in documents)
    assert kinds == [
        ("ConfigMap", "it-broker"),
        ("Deployment", "it-distributor"),
        ("Deployment", "it-limit"),
        ("PodDisruptionBudget", "it-broker"),
        ("PodDisruptionBudget", "it-distributor"),
        ("Service", "it-broker"),
        ("Service", "it-distributor"),
        ("Service", "it-limit"),
        ("StatefulSet", "it-broker"),
    ]
    by_name = {(document["kind"], document["metadata"]["name"]): document for document in documents}
    for kind, name in kinds:
        if kind not in ("Deployment", "StatefulSet"):
            continue
        spec = by_name[kind, name]["spec"]
        labels, pod = spec["template"]["metadata"]["labels"], spec["template"]["spec"]
        assert spec["selector"]["matchLabels"] == labels
        assert pod["securityContext"]["runAsNonRoot"]
        (container,) = pod["containers"]
        assert unknown_words(container["args"]) == []
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        claims = {claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", ())}
        assert mounted <= {volume["name"] for volume in pod["volumes"]} | claims
        assert container["securityContext"]["readOnlyRootFilesystem"]
        ports = {port["name"] for port in container["ports"]}
        for probe in ("readinessProbe", "livenessProbe"):
            how = container[probe]
            assert (how.get("httpGet") or how["tcpSocket"])["port"] in ports
        assert by_name["Service", name]["spec"]["selector"] == labels
    assert "--realtime" in by_name["StatefulSet", "it-broker"]["spec"]["template"]["spec"]["containers"][0]["args"]


@needs_helm
@pytest.mark.slow
def test_kubernetes_knows_every_field() -> None:
    for document in rendered(*FULL):
        assert kubernetes_validate.validate(document, KUBERNETES, strict=True) == "1.31"


def test_a_field_that_kubernetes_does_not_know_is_found() -> None:
    document = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"port": 1}}
    with pytest.raises(kubernetes_validate.ValidationError, match="'port' was unexpected"):
        kubernetes_validate.validate(document, KUBERNETES, strict=True)


@needs_helm
@pytest.mark.skipif(KUBECONFORM is None, reason="kubeconform is not installed here ($KUBECONFORM names one)")
@pytest.mark.slow
def test_kubeconform_finds_nothing_wrong(tmp_path: Path) -> None:
    """With the schemas of kubernetes-validate, as its own come from the Internet; they refer to each other by URL."""
    assert KUBECONFORM is not None
    schemas = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema" / f"v{KUBERNETES}-local-strict"
    definitions = (tmp_path / "_definitions.json").as_uri()
    for file in schemas.iterdir():
        (tmp_path / file.name).write_text(file.read_text().replace("/api/_definitions.json", definitions))
    named = "{{.ResourceKind}}{{.KindSuffix}}.json"
    documents = rendered(*FULL)
    done = subprocess.run(
        [
            KUBECONFORM,
            "-strict",
            "-summary",
            "-kubernetes-version",
            KUBERNETES,
            "-schema-location",
            f"{tmp_path}/{named}",
        ],
        input=yaml.safe_dump_all(documents),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Valid: {len(documents)}, Invalid: 0, Errors: 0, Skipped: 0" in done.stdout


@pytest.mark.parametrize(("status", "said"), [(204, "was told: 204"), (409, "refused: 409")])
def test_a_broker_says_that_its_earlier_process_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], status: int, said: str
) -> None:
    asked: list[tuple[str, str | None, Any]] = []

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            asked.append((self.path, self.headers["Authorization"], json.loads(body)))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    (tmp_path / "srtm.incarnation").write_text("i-7\n")
    script = tmp_path / "report_end.py"
    script.write_text((CHART / "files" / "report_end.py").read_text().replace("/var/lib/srtm", str(tmp_path)))
    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.handle_request).start()
        monkeypatch.setenv("SRTM_DISTRIBUTOR", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("POD_NAME", "it-broker-0")
        monkeypatch.setenv("SRTM_TOKEN", "secret")
        runpy.run_path(str(script))
    body = {"incarnation": "i-7", "reason": "its pod was started again"}
    assert asked == [("/v1/brokers/it-broker-0/dead", "Bearer secret", body)]
    assert said in capsys.readouterr().out
