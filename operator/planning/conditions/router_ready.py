"""Condition RouterReady: at least one router accepts requests."""

from octavo.operator.planning.conditions.facts import Facts, Verdict, count


def verdict(facts: Facts) -> Verdict:
    if facts.routers_ready:
        return True, "Ready", f"{count(facts.routers_ready, 'router')} ready"
    if facts.routers_desired == 0:
        return False, "NoRouters", "spec.router.replicas is 0: there are no routers"
    if facts.router_cause:
        return False, facts.router_cause.reason, facts.router_cause.message
    return False, "RouterStarting", "no router pod is ready yet"
