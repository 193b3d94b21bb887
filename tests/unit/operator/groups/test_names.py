"""The longest allowed name fits everything that is made of it, and no two services meet in one name."""

import re

from hypothesis import assume, given
from hypothesis import strategies as st
from support.cluster.services import resource, service

from octavo.operator.api.v1alpha1 import SpecError, parse
from octavo.operator.groups import names
from octavo.operator.groups.options import Options
from octavo.operator.groups.snapshot import Snapshot
from octavo.operator.planning.plan import plan

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
PARTS = st.lists(
    st.sampled_from(["a", "b", "0", "1", "ranks", "router", "workers", "leaders", "ca", "tls"]), min_size=1
)


def every_name(name: str) -> set[tuple[str, str]]:
    planned = plan(service(name, replicas=2), Snapshot(), Options(), 0.0)
    made = {(item.object["kind"], item.object["metadata"]["name"]) for item in planned.apply}
    return made | {("Secret", secret) for secret in names.secrets(name)}


def test_the_longest_name_fits_every_object_pod_and_label() -> None:
    longest = "a" * 40
    for kind, name in every_name(longest):
        assert len(name) <= 63 and LABEL.fullmatch(name), f"{kind} {name}"
    pod = f"{names.group(longest, 999)}-0"
    assert len(pod) <= 63, "a pod's name is its host name"
    assert len(f"{names.group(longest, 999)}-0123456789") <= 63, "label controller-revision-hash"


@given(PARTS, PARTS)
def test_two_services_never_make_an_object_of_one_name(one: list[str], other: list[str]) -> None:
    first, second = "-".join(one), "-".join(other)
    assume(first != second)
    try:
        parse(resource(first)), parse(resource(second))
    except SpecError:
        return
    assert not every_name(first) & every_name(second)


def test_the_scale_selector_finds_one_pod_of_each_group() -> None:
    wanted = "octavo.dev/service=chat,octavo.dev/component=worker,apps.kubernetes.io/pod-index=0"
    assert names.leader_selector("chat") == wanted
