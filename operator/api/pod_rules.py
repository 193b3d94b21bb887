"""Kubernetes' own rules for the fields that pass to pods: resources, node selectors and tolerations.

Without them the API server would accept the service and refuse each of its pods. Patterns are of the schema, rules are
CEL and functions; both are as strict as the API server's validation of a pod, and the names of resources a little more:
huge pages and names under kubernetes.io are refused, since no container of Octavo can use them.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from octavo.operator.api.quantity import quantity
from octavo.operator.api.validate import Rule

Json = Mapping[str, Any]  # Any: JSON

_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_DOMAIN = r"[a-z0-9]([-a-z0-9]{0,251}[a-z0-9])?([.][a-z0-9]([-a-z0-9]{0,251}[a-z0-9])?)*"
KEY_PATTERN = rf"^(({_DOMAIN}/)?{_NAME})?$"  # a label's key, or empty; its domain is bounded by a rule
VALUE_PATTERN = rf"^({_NAME})?$"  # a label's value
_EXTENDED = rf"^{_DOMAIN}/{_NAME}$"
MAX_KEY, MAX_VALUE, MAX_DOMAIN = 317, 63, 253  # characters
_WHOLE = r"^[0-9]+([kMGTPE]|[KMGTPE]i)?$"
_PLAIN = ("cpu", "memory", "ephemeral-storage")
_MAX_EXTENDED_DOMAIN = MAX_DOMAIN - len("requests.")  # quotas put this before the name


def _matches(pattern: str, text: str) -> bool:
    """As RE2 does: `$` is the end of the text."""
    return re.search(pattern.removesuffix("$") + r"\Z", text) is not None


def is_key(text: str) -> bool:
    """True for the key of a label."""
    return text != "" and _matches(KEY_PATTERN, text) and text.find("/") <= MAX_DOMAIN


def _is_resource(name: str) -> bool:
    extended = _matches(_EXTENDED, name) and "kubernetes.io/" not in name and not name.startswith("requests.")
    return name in _PLAIN or (extended and name.index("/") <= _MAX_EXTENDED_DOMAIN)


def of_resources(part: str, holds: Callable[[Json, Json], bool]) -> Callable[[Json], bool]:
    """`holds(requests, limits)` of the workers' or the routers' resources."""

    def of_part(resource: Json) -> bool:
        spec = resource["spec"]
        found = spec["router"]["resources"] if part == "spec.router.resources" else spec.get("resources", {})
        return holds(found.get("requests", {}), found.get("limits", {}))

    return of_part


def _names_are_known(requests: Json, limits: Json) -> bool:
    return all(map(_is_resource, (*requests, *limits)))


def _extended_are_whole(requests: Json, limits: Json) -> bool:
    return all(
        _matches(_WHOLE, str(amounts[name])) for amounts in (requests, limits) for name in amounts if "/" in name
    )


def _extended_are_limited(requests: Json, limits: Json) -> bool:
    return all(quantity(requests[name]) == quantity(limits.get(name)) for name in requests if "/" in name)


def _each(condition: str) -> str:
    """CEL expression: the condition on (k, amounts[k]) holds in requests and in limits."""
    return " && ".join(
        f"(!has(self.{kind}) || self.{kind}.all(k, {condition.replace('VALUE', f'self.{kind}[k]')}))"
        for kind in ("requests", "limits")
    )


def _resource_rules(at: str) -> tuple[Rule, ...]:
    extended = f"k.matches('{_EXTENDED}') && k.indexOf('/') <= {_MAX_EXTENDED_DOMAIN}"
    return (
        Rule(
            at,
            _each(
                f"k in {list(_PLAIN)} || (!k.contains('kubernetes.io/') && !k.startsWith('requests.') && {extended})"
            ),
            at,
            f"{at}: a resource is cpu, memory, ephemeral-storage, or a name with a domain such as example.com/fpga",
            of_resources(at, _names_are_known),
        ),
        Rule(
            at,
            _each(f"!k.contains('/') || string(VALUE).matches('{_WHOLE}')"),
            at,
            f"{at}: amounts of a resource whose name has a domain must be whole numbers, such as 2",
            of_resources(at, _extended_are_whole),
        ),
        Rule(
            at,
            "!has(self.requests) || self.requests.all(k, !k.contains('/') || (has(self.limits) && k in self.limits && "
            "quantity(string(self.requests[k])).compareTo(quantity(string(self.limits[k]))) == 0))",
            at,
            f"{at}: a request of a resource whose name has a domain needs an equal limit",
            of_resources(at, _extended_are_limited),
        ),
    )


def _tolerations(holds: Callable[[Json], bool]) -> Callable[[Json], bool]:
    return lambda resource: all(map(holds, resource["spec"]["accelerator"]["tolerations"]))


_SELECTOR, _TOLERATIONS = "spec.accelerator.nodeSelector", "spec.accelerator.tolerations"
_EXISTS = "(has(t.operator) && t.operator == 'Exists')"

POD_RULES: tuple[Rule, ...] = (
    *_resource_rules("spec.resources"),
    *_resource_rules("spec.router.resources"),
    Rule(
        _SELECTOR,
        f"self.all(k, k != '' && k.matches('{KEY_PATTERN}') && k.indexOf('/') <= {MAX_DOMAIN})",
        _SELECTOR,
        f"{_SELECTOR}: a key is NAME or DOMAIN/NAME, e.g. nvidia.com/gpu.product: letters, digits, -, _ and ., a NAME "
        f"of at most 63 characters and a DOMAIN of at most {MAX_DOMAIN}",
        lambda resource: all(map(is_key, resource["spec"]["accelerator"]["nodeSelector"])),
    ),
    Rule(
        _TOLERATIONS,
        f"self.all(t, !has(t.key) || t.key.indexOf('/') <= {MAX_DOMAIN})",
        _TOLERATIONS,
        f"{_TOLERATIONS}: the domain of a key has at most {MAX_DOMAIN} characters",
        _tolerations(lambda item: item.get("key", "").find("/") <= MAX_DOMAIN),
    ),
    Rule(
        _TOLERATIONS,
        f"self.all(t, (has(t.key) && t.key != '') || {_EXISTS})",
        _TOLERATIONS,
        f"{_TOLERATIONS}: a toleration without a key must have operator Exists",
        _tolerations(lambda item: bool(item.get("key")) or item.get("operator") == "Exists"),
    ),
    Rule(
        _TOLERATIONS,
        f"self.all(t, !has(t.value) || t.value == '' || !{_EXISTS})",
        _TOLERATIONS,
        f"{_TOLERATIONS}: a toleration with operator Exists must have no value",
        _tolerations(lambda item: not item.get("value") or item.get("operator") != "Exists"),
    ),
    Rule(
        _TOLERATIONS,
        "self.all(t, !has(t.tolerationSeconds) || (has(t.effect) && t.effect == 'NoExecute'))",
        _TOLERATIONS,
        f"{_TOLERATIONS}: tolerationSeconds needs effect NoExecute",
        _tolerations(lambda item: "tolerationSeconds" not in item or item.get("effect") == "NoExecute"),
    ),
)
