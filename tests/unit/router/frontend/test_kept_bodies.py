"""Bodies are kept for another model within a bound, and no longer than they may be needed."""

from octavo.router.frontend.kept_bodies import KeptBodies, KeptBody


def test_a_body_that_finds_no_room_is_not_kept() -> None:
    bodies = KeptBodies(most=10)
    first, second, third = (KeptBody("chat", b"123456") for _ in range(3))
    bodies.keep(first)
    bodies.keep(second)
    assert (first.body, second.body, bodies.size) == (b"123456", None, 6)
    second.release()
    first.release()
    assert (first.body, bodies.size) == (None, 0)
    bodies.keep(third)
    assert (third.body, bodies.size) == (b"123456", 6)
    third.release()
    third.release()
    assert bodies.size == 0
