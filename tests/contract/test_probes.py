"""Every probe of a pod asks the page that says what the probe is for, and routers may read what they watch."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.cluster.services import service

from octavo.operator import health as operator_health
from octavo.operator.groups.options import Options
from octavo.operator.groups.snapshot import Snapshot
from octavo.operator.planning.plan import plan
from octavo.router.dispatch import discovery
from octavo.router.frontend.http import server as router_server
from octavo.worker.supervisor import health as worker_health

Json = dict[str, Any]  # Any: Kubernetes JSON
DEPLOYMENT = Path(__file__).parents[2] / "charts/octavo/templates/deployment.yaml"
PLANNED = {
    (item.object["kind"], item.object["metadata"]["name"]): item.object
    for item in plan(service(), Snapshot(), Options(), 0.0).apply
}
# By pod and probe. Liveness restarts the container, so its page is about the process alone; readiness is about service.
PAGES = {
    "worker": {"startupProbe": "/startupz", "readinessProbe": "/readyz", "livenessProbe": "/livez"},
    "router": {"startupProbe": "/livez", "readinessProbe": "/routerz", "livenessProbe": "/livez"},
    "operator": {"startupProbe": "/livez", "readinessProbe": "/readyz", "livenessProbe": "/livez"},
}
SERVERS = {"worker": worker_health, "router": router_server, "operator": operator_health}


def container(pod: str) -> Json:
    if pod == "operator":
        text = DEPLOYMENT.read_text()
        probes = re.findall(r"^          (\w+Probe):\n((?:            .*\n)+)", text, re.MULTILINE)
        return {name: yaml.safe_load(body) for name, body in probes}
    owner = ("StatefulSet", "chat-0") if pod == "worker" else ("Deployment", "chat-router")
    (found,) = PLANNED[owner]["spec"]["template"]["spec"]["containers"]
    return dict(found)


@pytest.mark.parametrize("pod", PAGES)
def test_each_probe_asks_its_page_and_the_pod_serves_it(pod: str) -> None:
    found = {name: probe["httpGet"]["path"] for name, probe in container(pod).items() if name.endswith("Probe")}
    assert found == PAGES[pod]
    source = inspect.getsource(SERVERS[pod])
    for path in found.values():
        assert re.search(rf'"/?{path[1:]}"', source), f"no page {path}"


def test_the_role_of_the_routers_has_the_verbs_of_their_discovery_and_no_more() -> None:
    (rule,) = PLANNED["Role", "chat-router"]["rules"]
    source = inspect.getsource(discovery)
    assert "/endpointslices" in source and '"watch": "true"' in source
    assert rule == {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]}
