"""Condition SpecSupported: this release of the operator knows all fields of the spec."""

from octavo import __version__
from octavo.operator.planning.conditions.facts import Facts, Verdict

REASON = "UnknownFields"


def verdict(facts: Facts) -> Verdict:
    if not facts.unknown_fields:
        return True, "Supported", "the operator knows all fields of the spec"
    return (
        False,
        REASON,
        f"the operator, release {__version__}, does not know {facts.unknown_fields}: this has no effect on what it "
        "creates or changes; upgrade the operator, or remove it from the spec",
    )
