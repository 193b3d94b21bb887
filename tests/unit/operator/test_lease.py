"""When a Lease may be taken, by the observer's own clock; and that the fence falls before that."""

from typing import Any

from octavo.operator.lease import FENCE_S, LIFE_S, WRITE_TIMEOUT_S, Sight


def _lease(holder: str, version: str) -> dict[str, Any]:
    # The holder's clock is an hour wrong; nobody looks at it.
    spec = {"holderIdentity": holder, "renewTime": "2020-01-01T00:00:00.000000Z"}
    return {"metadata": {"resourceVersion": version}, "spec": spec}


NEVER = Sight("", "", float("-inf"))


def test_the_last_write_of_a_holder_ends_before_the_lease_can_be_taken() -> None:
    assert FENCE_S + WRITE_TIMEOUT_S < LIFE_S


def test_a_lease_that_is_renewed_is_never_free() -> None:
    sight = NEVER
    for beat in range(20):
        sight = sight.seen(_lease("a", str(beat)), beat * 2.5)
        assert not sight.free(beat * 2.5 + 2.4)


def test_a_lease_that_nobody_renews_is_free_after_its_life() -> None:
    sight = NEVER.seen(_lease("a", "1"), 100.0)
    assert not sight.seen(_lease("a", "1"), 100.0 + LIFE_S).free(100.0 + LIFE_S)
    assert sight.seen(_lease("a", "1"), 101.0 + LIFE_S).free(101.0 + LIFE_S)


def test_a_released_lease_is_free_at_once() -> None:
    assert NEVER.seen(_lease("", "2"), 5.0).free(5.0)
