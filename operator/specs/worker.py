"""The StatefulSet of a group. Its pod template is rendered once per revision and kept in a ControllerRevision."""

from octavo.operator.api.accelerators import DEVICES, GPU
from octavo.operator.api.v1alpha1 import InferenceService
from octavo.operator.groups import gang_backoff as gangs
from octavo.operator.groups import names
from octavo.operator.groups.groups import GangBackoff, Group, timestamp
from octavo.operator.groups.options import Options
from octavo.operator.groups.snapshot import Object
from octavo.operator.specs import common
from octavo.operator.specs.arguments import engine_flags, flags, group_flags
from octavo.operator.specs.common import Json
from octavo.operator.specs.model_volumes import MODELS, mounted

STARTUP_FAILURES = 7200  # 2 h: a model may be large and its disk slow; the supervisor detects hangs itself
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_HOST = "kubernetes.io/hostname"


def statefulset(
    service: InferenceService,
    group: Group,
    revision: str,
    now: float,
    backoff: GangBackoff | None = None,
    drain_since: float | None = None,
) -> Json:
    """The StatefulSet of a group that has a template. Immutable fields of a live StatefulSet keep their values."""
    assert group.template is not None, "a group without a template is replaced, not written"
    labels = {names.COMPONENT: "worker", names.GROUP: str(group.index), names.REVISION: revision}
    metadata = common.metadata(service, names.group(service.name, group.index), labels)
    if annotations := _annotations(group, now, backoff, drain_since):
        metadata["annotations"] = annotations
    selector = {**names.component(service.name, "worker"), names.GROUP: str(group.index)}
    fixed = {"serviceName": names.ranks(service.name), "podManagementPolicy": "Parallel"}
    if group.live is not None:
        fixed = {key: group.live["spec"][key] for key in fixed if key in group.live["spec"]}
        selector = group.live["spec"]["selector"]["matchLabels"]
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": metadata,
        "spec": {
            **fixed,
            "replicas": 0 if backoff is not None and backoff.scaled_to_zero else group.size,
            "selector": {"matchLabels": selector},
            # Another revision is another group: a template edited by hand must not roll the pods.
            "updateStrategy": {"type": "OnDelete"},
            "template": _with_group_label(group.template, group.index),
        },
    }


def _annotations(group: Group, now: float, backoff: GangBackoff | None, drain_since: float | None) -> dict[str, str]:
    """What must survive the operator: whether the group has served, since when it does not, its back-off, and since
    when it is being replaced for a drain."""
    found = {names.SERVED: "true"} if group.served else {}
    down_since = group.down_since(now)
    if down_since is not None:
        found[names.DOWN_SINCE] = timestamp(down_since)
    if backoff is not None:
        found[names.GANG_BACKOFF] = gangs.encode(backoff)
    if drain_since is not None:
        found[names.DRAIN_SINCE] = timestamp(drain_since)
    return found


def _with_group_label(template: Object, index: int) -> Json:
    """The template with the group's label on its pods, in their affinity, and excluded from their anti-affinity."""
    metadata, spec = dict(template.get("metadata") or {}), dict(template["spec"])
    metadata["labels"] = {**metadata.get("labels", {}), names.GROUP: str(index)}
    if "affinity" in spec:
        spec["affinity"] = {
            kind: {_PREFERRED: [_of_group(term, index, kind == "podAffinity") for term in terms[_PREFERRED]]}
            for kind, terms in spec["affinity"].items()
        }
    return {**template, "metadata": metadata, "spec": spec}


def _of_group(preference: Object, index: int, same: bool) -> Json:
    """The preference for pods of this group (same), or of the service's other groups."""
    term = preference["podAffinityTerm"]
    labels = term["labelSelector"]["matchLabels"]
    if same:
        selector: Json = {"matchLabels": {**labels, names.GROUP: str(index)}}
    else:
        others = {"key": names.GROUP, "operator": "NotIn", "values": [str(index)]}
        selector = {"matchLabels": labels, "matchExpressions": [others]}
    return {**preference, "podAffinityTerm": {**term, "labelSelector": selector}}


def pod_template(service: InferenceService, revision: str, options: Options) -> Json:
    """The pod template of a revision, with the operator's current defaults and without a group label."""
    _, worker_tls, _ = names.secrets(service.name)
    labels = {**names.common_labels(service.name), names.COMPONENT: "worker", names.REVISION: revision}
    spec: Json = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": service.spec.disruption.grace_s,
        "securityContext": common.pod_security(),
        "tolerations": common.tolerations(service.spec.disruption, service.spec.accelerator.tolerations),
        "affinity": _affinity(service),
        "containers": [_container(service, revision, options)],
        "volumes": [common.scratch("tmp", "2Gi"), common.secret("tls", worker_tls), *_model_volume(service)],
    }
    if service.spec.accelerator.node_selector:
        spec["nodeSelector"] = dict(service.spec.accelerator.node_selector)
    annotations = {names.MODEL: service.spec.model.uri}
    if service.spec.pods > 1:
        annotations[names.PODS] = str(service.spec.pods)
    return {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec}


def _affinity(service: InferenceService) -> Json:
    """Preferences. Groups are on different nodes, so that the loss of one costs one group. The pods of a group
    communicate in every step, so they are on one node, else in one zone. `_of_group` adds the group's label."""
    selector = {"matchLabels": names.component(service.name, "worker")}
    apart = [{"weight": 50, "podAffinityTerm": {"topologyKey": _HOST, "labelSelector": selector}}]
    together = [
        {"weight": weight, "podAffinityTerm": {"topologyKey": key, "labelSelector": selector}}
        for key, weight in ((_HOST, 100), ("topology.kubernetes.io/zone", 50))
    ]
    found: Json = {"podAntiAffinity": {_PREFERRED: apart}}
    return found if service.spec.pods == 1 else {"podAffinity": {_PREFERRED: together}, **found}


def _container(service: InferenceService, revision: str, options: Options) -> Json:
    container: Json = {
        "name": "worker",
        "image": service.spec.image or options.worker_image,
        "imagePullPolicy": options.image_pull_policy,
        "command": ["octavo", "worker"],
        "args": _arguments(service, revision),
        "env": [
            common.from_pod("POD_NAME", "metadata.name"),
            *_position_env(service),
            {"name": "HOME", "value": "/tmp"},
        ],
        "ports": [
            common.port("serve", names.SERVE),
            common.port("group", names.JOIN),
            common.port("status", names.STATUS),
            common.port("health", names.HEALTH),
            common.port("metrics", names.METRICS),
        ],
        "startupProbe": common.probe("/startupz", "health", 1, STARTUP_FAILURES),
        "readinessProbe": common.probe("/readyz", "health", 1, 1),
        "livenessProbe": common.probe("/livez", "health", 10, 3),
        "securityContext": common.container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [common.mount("tmp", "/tmp", read_only=False), common.mount("tls", common.TLS_DIR)],
    }
    if resources := _resources(service):
        container["resources"] = resources
    if _model_volume(service):
        container["volumeMounts"].append(common.mount("models", MODELS))
    return container


def _position_env(service: InferenceService) -> list[Json]:
    """Environment variables with the pod's and the group's index, which the arguments refer to."""
    if service.spec.pods == 1:
        return []
    labels = {"POD_INDEX": names.POD_INDEX, "GROUP": names.GROUP}
    return [common.from_pod(name, f"metadata.labels['{label}']") for name, label in labels.items()]


def _resources(service: InferenceService) -> Json:
    """spec.resources, and one GPU for each rank; requests and limits of GPUs must be equal."""
    desired: Json = {kind: dict(amounts) for kind, amounts in service.spec.resources.items()}
    if service.spec.accelerator.resource == GPU:
        for kind in ("requests", "limits"):
            desired[kind] = {**desired.get(kind, {}), GPU: str(service.spec.accelerator.per_pod)}
    return desired


def _arguments(service: InferenceService, revision: str) -> list[str]:
    return [
        *flags(
            [
                ("--model", _model(service.spec.model.uri)),
                ("--device", DEVICES[service.spec.accelerator.resource].device),
                ("--serve", f"0.0.0.0:{names.SERVE}"),
                ("--group", f"0.0.0.0:{names.JOIN}"),
                ("--status", f"0.0.0.0:{names.STATUS}"),
                ("--health", f"0.0.0.0:{names.HEALTH}"),
                ("--metrics", f"0.0.0.0:{names.METRICS}"),
                ("--tls-dir", common.TLS_DIR),
                ("--service-uid", service.uid),
                ("--revision", revision),
                ("--pod-name", "$(POD_NAME)"),
                ("--grace-period", service.spec.disruption.grace_s),
            ]
        ),
        *group_flags(service.spec),
        *_peers(service),
        *engine_flags(service.spec),
    ]


def _peers(service: InferenceService) -> list[str]:
    """Flags with the pod's index and the DNS names of all pods of the group."""
    if service.spec.pods == 1:
        return []
    domain = f"{names.ranks(service.name)}:{names.JOIN}"
    peers = [f"{names.group(service.name, '$(GROUP)')}-{pod}.{domain}" for pod in range(service.spec.pods)]
    return flags([("--pod-index", "$(POD_INDEX)"), ("--peers", ",".join(peers))])


def _model(uri: str) -> str:
    """The model's uri for the worker."""
    model = mounted(uri)
    return uri if model is None else model.uri


def _model_volume(service: InferenceService) -> list[Json]:
    model = mounted(service.spec.model.uri)
    return [] if model is None else [{"name": "models", **model.volume}]
