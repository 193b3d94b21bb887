"""What the API server itself refuses, without any operator: every rule, bound and name."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.cluster import pod_fields, spec_cases
from support.cluster.api_client import ApiError
from support.cluster.bed import Bed
from support.cluster.operators import service
from support.cluster.pod_fields import BAD, as_pod, of_routers

from octavo.operator.api.schema import RULES

MODEL = "bundled://smollm2-135m-instruct"
GPU = {"accelerator": {"resource": "nvidia.com/gpu"}}


@pytest.fixture(scope="module")
def space(bed: Bed) -> Iterator[str]:
    """One for all: next to nothing is made in it."""
    with bed.namespace("rules") as name:
        yield name


def _refusal(bed: Bed, space: str, resource: dict[str, Any]) -> str:
    try:
        bed.client.check(resource, space)
    except ApiError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", ["a", "a" * 40, "chat-2", "x-y-z"])
def test_a_good_name_is_accepted(bed: Bed, space: str, name: str) -> None:
    assert _refusal(bed, space, service(name)) == ""


@pytest.mark.parametrize(
    "name", ["a" * 41, "a" * 52, "a" * 63, "a" * 200, "chat.one", "2chat", "chat-ranks", "chat-leaders", "chat-router"]
)
def test_a_name_that_children_could_not_carry_is_refused(bed: Bed, space: str, name: str) -> None:
    assert "metadata.name" in _refusal(bed, space, service(name))


BOUNDS: dict[str, dict[str, Any]] = {
    "spec.replicas": {"replicas": -1},
    "spec.replicas of a thousand": {"replicas": 1000},
    "spec.model.dtype": {"model": {"uri": MODEL, "dtype": "float8"}},
    "spec.model.contextLength": {"model": {"uri": MODEL, "contextLength": 0}},
    "spec.model.servedName": {"model": {"uri": MODEL, "servedName": "two words"}},
    "spec.accelerator.resource": {"accelerator": {"resource": "abacus"}},
    "spec.parallelism.tensor": {"parallelism": {"tensor": 0}},
    "spec.parallelism.pipeline": {"parallelism": {"pipeline": 65}},
    "spec.parallelism.pipeline of no stage": {"parallelism": {"pipeline": 0}},
    "spec.accelerator.perPod": {"accelerator": {"perPod": 0}},
    "spec.engine.maxBatchTokens": {"engine": {"maxBatchTokens": 0}},
    "spec.engine.tokenInterval": {"engine": {"tokenInterval": "soon"}},
    "spec.engine.kvCacheMemory": {"engine": {"kvCacheMemory": "much"}},
    "spec.resources.limits": {"resources": {"requests": {"memory": "1Gi"}, "limits": {"memory": "much"}}},
    "spec.router.resources.requests": {"router": {"resources": {"requests": {"cpu": "-"}, "limits": {"cpu": "1"}}}},
    "spec.router.processes": {"router": {"processes": 0}},
    "spec.router.maxConnections": {"router": {"maxConnections": 0}},
    "spec.router.clientPriority": {"router": {"clientPriority": "yes"}},
    "spec.router.strict": {"router": {"strict": "yes"}},
    "spec.router.corsOrigins[1]": {"router": {"corsOrigins": ["*", "https://a.example/"]}},
    "spec.router.toolParser": {"router": {"toolParser": "grok"}},
    "spec.router.reasoningParser": {"router": {"reasoningParser": "deepseek_r1"}},
    "spec.router.queue.maxWait": {"router": {"queue": {"maxWait": "a " * 20}}},
    "spec.router.apiKeys.secretName": {"router": {"apiKeys": {"key": "keys"}}},
    "spec.router.apiKeys.key": {"router": {"apiKeys": {"secretName": "clients", "key": "a/b"}}},
    "spec.router.service.type": {"router": {"service": {"type": "ExternalName"}}},
    "spec.router.service.port": {"router": {"service": {"port": 70000}}},
    "spec.router.service.externalTrafficPolicy": {"router": {"service": {"externalTrafficPolicy": "Anywhere"}}},
    "spec.disruption.gracePeriod": {"disruption": {"gracePeriod": "0s"}},
    "spec.scheduling.gangBackoffAfter": {"scheduling": {"gangBackoffAfter": "later"}},
    "spec.networkPolicy.mode": {"networkPolicy": {"mode": "some"}},
    "spec.networkPolicy.clients[0].ipBlock.cidr": {"networkPolicy": {"clients": [{"ipBlock": {"cidr": "ten"}}]}},
    "spec.router.service.grpcPort": {"router": {"service": {"grpcPort": 0}}},
    "spec.rollout.progressDeadline": {"rollout": {"progressDeadline": "1d"}},
    "spec.rollout.onFailure": {"rollout": {"onFailure": "undo"}},
    "spec.rollout.historyLimit": {"rollout": {"historyLimit": 101}},
    "spec.image": {"image": "two words"},
}


@pytest.mark.parametrize("what", spec_cases.GOOD)
def test_a_spec_within_the_rules_is_accepted(bed: Bed, space: str, what: str) -> None:
    assert _refusal(bed, space, service(**spec_cases.GOOD[what])) == ""


@pytest.mark.parametrize("what", spec_cases.BAD)
def test_a_spec_against_the_rules_is_refused_with_their_messages_and_no_other(bed: Bed, space: str, what: str) -> None:
    begin, spec = spec_cases.BAD[what]
    said = _refusal(bed, space, service(**spec))
    assert spec_cases.rule(begin).message in said
    assert {rule for rule in RULES if rule.message in said} == spec_cases.broken(spec), "CEL and `parse` disagree"


def test_every_rule_refuses_something(bed: Bed, space: str) -> None:
    said = [_refusal(bed, space, service(**spec)) for _, spec in spec_cases.BAD.values()]
    said += [_refusal(bed, space, service(name)) for name in ("2chat", "chat-ranks")]
    said += [
        _refusal(bed, space, service(**case)) for spec in BAD.values() for case in (spec, of_routers(spec) or spec)
    ]
    for rule in RULES:
        assert any(rule.message in text for text in said), f"no case breaks the rule: {rule.message}"


@pytest.mark.parametrize("what", pod_fields.GOOD)
def test_what_a_pod_may_have_a_service_may_ask_for(bed: Bed, space: str, what: str) -> None:
    spec = pod_fields.GOOD[what]
    assert _refusal(bed, space, as_pod(spec)) == "", "the table is wrong"
    assert _refusal(bed, space, service(**spec)) == _refusal(bed, space, service(**(of_routers(spec) or {}))) == ""


@pytest.mark.parametrize("what", BAD)
def test_what_a_pod_may_not_have_is_refused_in_a_service(bed: Bed, space: str, what: str) -> None:
    spec = BAD[what]
    assert _refusal(bed, space, as_pod(spec)), "the table is wrong"
    assert "spec." in _refusal(bed, space, service(**spec))
    assert "spec.router.resources" in _refusal(bed, space, service(**(of_routers(spec) or {}))) or not of_routers(spec)


@pytest.mark.parametrize("where", BOUNDS)
def test_a_value_out_of_bounds_is_refused_with_its_field(bed: Bed, space: str, where: str) -> None:
    said = _refusal(bed, space, service(**BOUNDS[where]))
    assert where.split()[0] in said
    assert "evaluating rule" not in said and "division by zero" not in said, "a rule fails on a value that is refused"


def test_an_unknown_field_is_refused_by_a_strict_client(bed: Bed, space: str) -> None:
    assert "quantisation" in _refusal(bed, space, service(quantisation="int8"))


def test_the_smallest_service_gets_its_defaults(bed: Bed, space: str) -> None:
    bed.apply(service(), namespace=space)
    found = bed.get("infsvc", "chat", space)
    assert found is not None
    assert found["status"] == {"observedGeneration": -1}, "tools wait for the operator's first look"
    assert found["spec"]["parallelism"] == {"tensor": 1, "pipeline": 1}
    rollout = {"maxSurge": 1, "maxUnavailable": 0, "progressDeadline": "30m", "onFailure": "pause", "historyLimit": 5}
    assert found["spec"]["replicas"] == 1 and found["spec"]["rollout"] == rollout


def test_explain_reads_as_a_manual(bed: Bed) -> None:
    text = bed.kubectl("explain", "infsvc.spec", "--recursive=false")
    assert "no description" not in text.lower() and "replicas" in text
    for part in ("engine", "parallelism", "accelerator"):
        assert "<empty>" not in bed.kubectl("explain", f"infsvc.spec.{part}")
    for field, default in (("replicas", "Default: 1."), ("router.queue.maxWait", "Default: 60s.")):
        assert default in " ".join(bed.kubectl("explain", f"infsvc.spec.{field}").split())


def test_a_column_shows_ready_of_desired_groups(bed: Bed, space: str) -> None:
    bed.apply(service("columns"), namespace=space)
    heads = bed.kubectl("-n", space, "get", "infsvc", "columns").splitlines()[0].split()
    assert heads == ["NAME", "READY", "UPDATED", "REASON", "MODEL", "URL", "AGE"]
