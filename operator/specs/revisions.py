"""ControllerRevisions, which keep the pod template of each revision and the record of its rollout."""

from octavo.operator.api.v1alpha1 import InferenceService
from octavo.operator.groups import names
from octavo.operator.groups.history import Record, data, encode
from octavo.operator.groups.snapshot import Object
from octavo.operator.specs import common
from octavo.operator.specs.common import Json


def of_workers(service: InferenceService, revision: str, template: Object, number: int, record: Record) -> Json:
    """The ControllerRevision of a revision of the workers. number: its place in the order of targets."""
    item = _revision(service, "worker", names.worker_revision(service.name, revision), revision, template, number)
    if text := encode(record):
        item["metadata"]["annotations"] = {names.RECORD: text}
    return item


def of_routers(service: InferenceService, revision: str, template: Object, number: int) -> Json:
    """The ControllerRevision of a revision of the routers."""
    return _revision(service, "router", names.router_revision(service.name, revision), revision, template, number)


def _revision(
    service: InferenceService, component: str, name: str, revision: str, template: Object, number: int
) -> Json:
    labels = {names.COMPONENT: component, names.REVISION: revision}
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": common.metadata(service, name, labels),
        "revision": number,
        "data": data(template),
    }
