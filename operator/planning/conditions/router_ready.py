"""Condition RouterReady: at least one router accepts requests, and has a valid key where keys are needed."""

from octavo.operator.planning.conditions.facts import Facts, Verdict, count


def verdict(facts: Facts) -> Verdict:
    routers = facts.routers
    if routers.desired == 0:
        return False, "NoRouters", "spec.router.replicas is 0: there are no routers"
    if routers.ready == 0:
        cause = facts.router_cause or facts.refused_for_serving or facts.router_wait
        if cause:
            return False, cause.reason, cause.message
        return False, "RouterStarting", "no router pod is ready yet"
    if facts.keys.cause:
        return not facts.keys.all_refused, facts.keys.cause.reason, facts.keys.cause.message
    if routers.complete:
        return True, "Ready", f"{count(routers.ready, 'router')} ready, as desired"
    return True, "RollingOut" if routers.updated < routers.total else "PartiallyReady", shown(facts)


def is_current(facts: Facts) -> bool:
    """True if a router of the present configuration accepts requests."""
    return facts.routers.updated_ready > 0


def shown(facts: Facts) -> str:
    """The numbers of routers, and why they are not as desired."""
    routers = facts.routers
    cause = facts.router_cause or facts.router_wait
    return (
        f"{routers.ready} of {count(routers.desired, 'router')} ready, {routers.updated_ready} of the present "
        f"configuration{f'; {cause.message}' if cause else ''}"
    )
