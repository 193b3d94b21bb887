"""The Deployment of the routers. As with groups, the pod template is kept until the revision changes."""

from collections.abc import Mapping
from typing import Any

from octavo.operator.api.v1alpha1 import InferenceService
from octavo.operator.groups import names
from octavo.operator.groups.options import Options
from octavo.operator.specs import common
from octavo.operator.specs.arguments import flags, router_flags
from octavo.operator.specs.common import Json

KEYS = "keys"  # the volume, and the file in it


def deployment(
    service: InferenceService,
    revision: str,
    template: Mapping[str, Any],  # Any: JSON
    annotations: Mapping[str, str],
    stop_old: bool = False,
) -> Json:
    """The Deployment of the routers. A new router is ready before an old one is stopped, unless the old ones must be
    stopped (stop_old), whether others are ready or not."""
    most = "100%" if stop_old else 0
    labels = {names.COMPONENT: "router", names.REVISION: revision}
    metadata = common.metadata(service, names.router(service.name), labels)
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {
            "replicas": service.spec.router.replicas,
            "selector": {"matchLabels": names.component(service.name, "router")},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": most}},
            "template": dict(template),
        },
    }


def with_account(template: Mapping[str, Any], uid: str | None) -> Mapping[str, Any]:
    """The pod template, changed if the routers' ServiceAccount was created again: tokens of the earlier one are void,
    so its pods must be replaced. uid: of the present one; None: no pod is older than it."""
    if uid is None:
        return template
    metadata = dict(template.get("metadata") or {})
    metadata["annotations"] = {**metadata.get("annotations", {}), names.ACCOUNT: uid}
    return {**template, "metadata": metadata}


def pod_template(service: InferenceService, revision: str, options: Options) -> Json:
    """The pod template of the routers, with the operator's current defaults."""
    _, _, router_tls = names.secrets(service.name)
    # The revision label changes the template when restartAt changes, so that the Deployment restarts the pods.
    labels = {**names.common_labels(service.name), names.COMPONENT: "router", names.REVISION: revision}
    return {
        "metadata": {"labels": labels},
        "spec": {
            "serviceAccountName": names.router(service.name),
            "automountServiceAccountToken": True,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": service.spec.disruption.grace_s,
            "securityContext": common.pod_security(),
            "tolerations": common.tolerations(service.spec.disruption),
            "affinity": {
                "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [_anti_affinity(service)]}
            },
            "containers": [_container(service, options)],
            "volumes": [common.scratch("tmp", "256Mi"), common.secret("tls", router_tls), *_key_volumes(service)],
        },
    }


def _anti_affinity(service: InferenceService) -> Json:
    """Preferred anti-affinity: routers on different nodes survive the loss of one."""
    selector = {"matchLabels": names.component(service.name, "router")}
    return {"weight": 100, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}}


def _container(service: InferenceService, options: Options) -> Json:
    container: Json = {
        "name": "router",
        "image": options.router_image,
        "imagePullPolicy": options.image_pull_policy,
        "command": ["octavo", "router"],
        "args": _arguments(service),
        "env": [common.from_pod("POD_NAME", "metadata.name"), {"name": "HOME", "value": "/tmp"}],
        "ports": [
            common.port("http", names.ROUTER_HTTP),
            common.port("grpc", names.ROUTER_GRPC),
            common.port("metrics", names.ROUTER_METRICS),
        ],
        "startupProbe": common.probe("/livez", "http", 1, 300),
        "readinessProbe": common.probe("/routerz", "http", 1, 2),
        "livenessProbe": common.probe("/livez", "http", 10, 3),
        "securityContext": common.container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [common.mount("tmp", "/tmp", read_only=False), common.mount("tls", common.TLS_DIR)],
    }
    if service.spec.router.api_keys is not None:
        container["volumeMounts"].append(common.mount(KEYS, common.KEYS_DIR))
    if service.spec.router.resources:
        container["resources"] = {kind: dict(amounts) for kind, amounts in service.spec.router.resources.items()}
    return container


def _key_volumes(service: InferenceService) -> list[Json]:
    """Volume of the API keys. The kubelet updates it when the Secret changes; the operator never reads the Secret. A
    router starts without it, and then refuses every request."""
    keys = service.spec.router.api_keys
    return [] if keys is None else [common.optional_entry(KEYS, keys.secret_name, keys.key)]


def _arguments(service: InferenceService) -> list[str]:
    keys = service.spec.router.api_keys
    return [
        *flags(
            [
                ("--http", f"0.0.0.0:{names.ROUTER_HTTP}"),
                ("--grpc", f"0.0.0.0:{names.ROUTER_GRPC}"),
                ("--metrics", f"0.0.0.0:{names.ROUTER_METRICS}"),
                ("--endpoints", f"{service.namespace}/{names.leaders(service.name)}"),
                ("--tls-dir", common.TLS_DIR),
                ("--service-uid", service.uid),
                ("--grace-period", service.spec.disruption.grace_s),
                ("--api-keys-file", None if keys is None else f"{common.KEYS_DIR}/{KEYS}"),
            ]
        ),
        *router_flags(service.spec.model, service.spec.router.settings),
    ]
