"""Condition UpToDate: all desired groups and routers of this generation serve, and no earlier ones are left."""

from octavo.operator.planning.conditions import progressing
from octavo.operator.planning.conditions.facts import Facts, Verdict, count


def verdict(facts: Facts) -> Verdict:
    _, reason, message = progressing.verdict(facts)
    if reason != progressing.COMPLETE:
        return False, reason, message
    serve = f"{count(facts.goal.groups, 'group')} and {count(facts.routers.desired, 'router')}"
    return True, progressing.COMPLETE, f"{serve} of this generation, as desired"
