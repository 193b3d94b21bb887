"""The function of each routing policy: `choose` of the module that is named like the policy."""

from importlib import import_module

from octavo.router.dispatch.policies.candidate import Policy
from octavo.shared.policies import POLICIES


def policy(name: str) -> Policy:
    """The policy of this name. Raises ValueError for a name that is not in the table."""
    if name not in POLICIES:
        raise ValueError(f"policy {name!r} does not exist; choose one of: {', '.join(POLICIES)}")
    chosen: Policy = import_module(f"octavo.router.dispatch.policies.{name.replace('-', '_')}").choose
    return chosen
