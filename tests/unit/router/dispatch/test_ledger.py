"""A router's own count of its credit on one stream."""

import pytest

from octavo.router.dispatch.rules.ledger import Ledger


def ledger(tokens: int) -> Ledger:
    made = Ledger()
    made.credit(0, tokens)
    return made


def test_a_new_stream_may_send_nothing() -> None:
    assert Ledger().balance == 0


def test_what_is_sent_is_taken_off_until_the_leader_has_seen_it() -> None:
    made = ledger(100)
    assert [made.send(30), made.send(30)] == [1, 2]
    assert made.balance == 40
    made.credit(1, 100)
    assert made.balance == 70
    made.credit(2, 50)
    assert made.balance == 50


def test_the_newest_credit_replaces_the_one_before() -> None:
    made = ledger(100)
    made.credit(0, 10)
    assert made.balance == 10


def test_a_request_of_any_size_goes_while_the_balance_is_positive() -> None:
    made = ledger(1)
    made.send(1_000_000)
    assert made.balance == 1 - 1_000_000
    with pytest.raises(AssertionError):
        made.send(1)


def test_an_old_credit_that_has_not_seen_a_request_does_not_free_it() -> None:
    made = ledger(100)
    made.send(80)
    made.send(80)
    made.credit(1, 100)
    assert (made.balance, made.unseen, made.unseen_tokens) == (20, 1, 80)
