"""What the API server would refuse in a pod is refused in the service, with the field, as by the API server itself
(tests/apiserver/test_rules.py runs the same table)."""

import pytest
from support.cluster.pod_fields import BAD, GOOD, Spec, of_routers
from support.cluster.services import resource

from octavo.operator.api.v1alpha1 import SpecError, parse

ROUTERS = {f"{what}, of routers": routers for what, spec in BAD.items() if (routers := of_routers(spec))}
FIELDS = ("spec.resources", "spec.router.resources", "spec.accelerator.nodeSelector", "spec.accelerator.tolerations")


@pytest.mark.parametrize("what", GOOD)
def test_what_a_pod_may_have_a_service_may_ask_for(what: str) -> None:
    parse(resource(**GOOD[what]))
    parse(resource(**(of_routers(GOOD[what]) or {})))


@pytest.mark.parametrize("spec", (BAD | ROUTERS).values(), ids=(BAD | ROUTERS).keys())
def test_what_a_pod_may_not_have_is_refused_with_its_field(spec: Spec) -> None:
    with pytest.raises(SpecError) as caught:
        parse(resource(**spec))
    assert caught.value.field.startswith(FIELDS)
