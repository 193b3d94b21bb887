"""Names of the routing policies: which of several groups gets a request.

A policy is a module of router/dispatch/policies and a line here. The values of spec.router.policy, the choices of
--policy, the checks of both and their texts follow from this table.
"""

from collections.abc import Mapping

# name -> what the policy does. Its module has the name with _ for -.
POLICIES: Mapping[str, str] = {
    "prefix-affinity": "the group with most of the prompt in its KV cache, unless it has much more work than others",
    "round-robin": "the groups in turn",
}
DEFAULT_POLICY = "prefix-affinity"


def described() -> str:
    """The policies and what they do, for help texts."""
    return "; ".join(f"{name}: {text}" for name, text in POLICIES.items())
