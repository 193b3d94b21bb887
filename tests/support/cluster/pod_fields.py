"""Fields of an InferenceService that pass to its pods: what the API server takes in a pod, and what it refuses."""

from typing import Any

Spec = dict[str, Any]  # Any: fields of spec


def _tolerates(**toleration: Any) -> Spec:
    return {"accelerator": {"tolerations": [toleration]}}


def _selects(**labels: str) -> Spec:
    return {"accelerator": {"nodeSelector": labels}}


def _limits(**amounts: Any) -> Spec:
    return {"resources": {"limits": {name.replace("__", "/"): amount for name, amount in amounts.items()}}}


def _extended(request: Any, limit: Any) -> Spec:
    found = {"requests": {"example.com/fpga": request}, "limits": {"example.com/fpga": limit}}
    return {"resources": {kind: amounts for kind, amounts in found.items() if None not in amounts.values()}}


DOMAIN = ".".join(["d" * 62] * 4) + "d"  # 252 characters

GOOD: dict[str, Spec] = {
    "plain resources": {
        "resources": {"requests": {"cpu": "1m", "memory": "1"}, "limits": {"ephemeral-storage": "1.5Gi"}}
    },
    "fractions of plain resources": {"resources": {"requests": {"cpu": 0, "memory": "0.5Ki"}}},
    "an extended resource": _extended("2", 2),
    "an extended resource without a request": _extended(None, "3"),
    "an extended resource in another spelling": _extended("1k", "1000"),
    "a long name of an extended resource": {"resources": {"limits": {f"{DOMAIN[:244]}/{'n' * 63}": 1}}},
    "a short name of an extended resource": {"resources": {"limits": {"a/B_c.d-9": 1}}},
    "labels": _selects(**{"nvidia.com/gpu.product": "NVIDIA-H100_80GB.HBM3", "pool": "", "A_b.c-1": "x"}),
    "the longest label": _selects(**{f"{DOMAIN}/{'n' * 63}": "v" * 63}),
    "a toleration of everything": _tolerates(operator="Exists"),
    "a toleration of everything, with an empty key": _tolerates(key="", operator="Exists", value="", effect=""),
    "a toleration of a key": _tolerates(key="nvidia.com/gpu", operator="Exists", effect="NoSchedule"),
    "a toleration of a value": _tolerates(key="pool", value="gpu", effect="PreferNoSchedule"),
    "a toleration of no value": _tolerates(key="pool", operator="Equal"),
    "a toleration for a while": _tolerates(key="a", operator="Exists", effect="NoExecute", tolerationSeconds=0),
}

BAD: dict[str, Spec] = {
    "an unknown plain resource": _limits(foo=1),
    "a misspelt plain resource": {"resources": {"requests": {"cpus": "1"}}},
    "a resource with a space": _limits(**{"foo bar/x y": 1}),
    "a resource without a name": _limits(**{"example.com/": 1}),
    "a resource without a domain": _limits(**{"/fpga": 1}),
    "a resource with two slashes": _limits(**{"a/b/c": 1}),
    "a resource with capitals in its domain": _limits(Example__fpga=1),
    "a resource that quotas name": _limits(**{"requests.example.com/fpga": 1}),
    "a resource with a domain that quotas cannot name": _limits(**{f"{DOMAIN[:245]}/x": 1}),
    "a resource with a name of 64 characters": _limits(**{f"a/{'n' * 64}": 1}),
    "a resource that ends in a newline": _limits(**{"example.com/fpga\n": 1}),
    "a fraction of an extended resource": _limits(example__fpga="1500m"),
    "a small fraction of an extended resource": _extended("0.5", "0.5"),
    "a request above the limit of an extended resource": _extended(2, 1),
    "a request below the limit of an extended resource": _extended(1, 2),
    "a request of an extended resource without a limit": _extended(1, None),
    "a label's key with a space": _selects(**{"gpu type!": "x"}),
    "a label's key with two slashes": _selects(**{"a/b/c": "x"}),
    "a label's key with an empty domain": _selects(**{"/b": "x"}),
    "a label's key with an empty name": _selects(**{"a/": "x"}),
    "an empty label's key": _selects(**{"": "x"}),
    "a label's key with capitals in its domain": _selects(**{"Nvidia.com/gpu": "x"}),
    "a label's key with dots in a row": _selects(**{"a..b/c": "x"}),
    "a label's key of 64 characters": _selects(**{"n" * 64: "x"}),
    "a label's key with a domain of 254 characters": _selects(**{f"{DOMAIN}dd/n": "x"}),
    "a label's key that ends in a newline": _selects(**{"pool\n": "x"}),
    "a label's value with a space": _selects(good="H 100 / big"),
    "a label's value with a slash": _selects(good="a/b"),
    "a label's value that ends in a dash": _selects(good="a-"),
    "a label's value of 64 characters": _selects(good="v" * 64),
    "a label's value that ends in a newline": _selects(good="a\n"),
    "a toleration's key with spaces": _tolerates(key="bad key!!", operator="Exists"),
    "a toleration's key with a domain of 254 characters": _tolerates(key=f"{DOMAIN}dd/n", operator="Exists"),
    "a toleration's value with a space": _tolerates(key="a", value="b c"),
    "a toleration of a value that need only exist": _tolerates(key="a", operator="Exists", value="b"),
    "a toleration without a key": _tolerates(operator="Equal", value="b"),
    "a toleration without a key and an operator": _tolerates(effect="NoSchedule"),
    "a toleration for a while of NoSchedule": _tolerates(operator="Exists", effect="NoSchedule", tolerationSeconds=5),
    "a toleration for a while of any effect": _tolerates(operator="Exists", tolerationSeconds=5),
}


def of_routers(spec: Spec) -> Spec | None:
    """The same resources for the routers; None where the spec has none."""
    return {"router": {"resources": spec["resources"]}} if "resources" in spec else None


def as_pod(spec: Spec) -> dict[str, Any]:
    """A pod with these fields."""
    container = {"name": "worker", "image": "octavo", "resources": spec.get("resources", {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "chat-0-0"},
        "spec": {"containers": [container], **spec.get("accelerator", {})},
    }
