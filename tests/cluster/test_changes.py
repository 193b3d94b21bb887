"""A service changes under clients that ask again and again: it ends as desired, and no request is refused."""

from support.cluster.bed import wait_until
from support.cluster.deployed import Service
from support.cluster.traffic import Traffic


def test_scaling_up_and_down_loses_no_request(letters: Service) -> None:
    with Traffic(letters.client()):
        letters.release.kubectl("scale", "infsvc/letters", "--replicas=2")
        letters.settled(2)
        assert letters.release.kubectl("get", "infsvc", "letters").splitlines()[1].split()[1] == "2/2"
        assert set(letters.pods()) == {"letters-0-0", "letters-1-0"}
        letters.release.kubectl("scale", "infsvc/letters", "--replicas=1")
        letters.settled(1)
        assert set(letters.pods()) == {"letters-0-0"}


def test_a_changed_spec_replaces_the_groups_and_loses_no_request(letters: Service) -> None:
    before = letters.pods()
    with Traffic(letters.client()):
        letters.change(engine=letters.spec()["engine"] | {"maxRequests": 8})
        letters.settled()
    after = letters.pods()
    assert not set(before.values()) & set(after.values())


def test_changed_routers_are_replaced_and_lose_no_request(letters: Service) -> None:
    before = letters.pods("router")
    with Traffic(letters.client()):
        letters.change(router=letters.spec()["router"] | {"queue": {"maxRequests": 77}})
        wait_until(lambda: not set(before) & set(letters.pods("router")), 60, "new routers, and the old ones gone")
    letters.settled()
