"""Certificates over the years: which are trusted when, with a clock of our own."""

import datetime

from cryptography import x509

from octavo.operator.cluster import pki
from octavo.operator.cluster.pki import Authority
from octavo.operator.groups import names

UID = "0b9f6a52-0b6f-4f0c-9d3c-7b6f7e1a2c3d"
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
NAME = names.dns_name("worker", UID)


def _trusted(leaf: pki.Pair, bundle: bytes) -> bool:
    authorities = x509.load_pem_x509_certificates(bundle)
    return any(_issued(leaf.parsed, authority) for authority in authorities)


def _issued(leaf: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        leaf.verify_directly_issued_by(authority)
    except Exception:  # any refusal counts as one
        return False
    return True


def test_a_new_authority_signs_leaves_with_exactly_one_name() -> None:
    ca = pki.authority(None, UID, START)
    leaf = pki.new_leaf(ca, NAME, START)
    assert pki.leaf_is_good(leaf, ca, NAME, START)
    names = leaf.parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [NAME]


def test_a_leaf_of_another_role_authority_or_time_is_renewed() -> None:
    ca, other = pki.authority(None, UID, START), pki.authority(None, UID, START)
    leaf = pki.new_leaf(ca, NAME, START)
    assert not pki.leaf_is_good(leaf, ca, names.dns_name("router", UID), START)
    assert not pki.leaf_is_good(leaf, other, NAME, START)
    assert not pki.leaf_is_good(leaf, ca, NAME, START + pki.LEAF_LIFETIME - pki.LEAF_RENEW_BEFORE)
    assert not pki.leaf_is_good(pki.Pair(b"damaged", leaf.key), ca, NAME, START)
    assert not pki.leaf_is_good(pki.Pair(leaf.certificate, pki.new_leaf(ca, NAME, START).key), ca, NAME, START)


def test_nothing_is_made_again_while_nothing_is_due() -> None:
    ca = pki.authority(None, UID, START)
    assert pki.authority(ca, UID, START + 300 * DAY) is ca


def test_over_four_years_peers_that_are_half_a_day_late_trust_each_other() -> None:
    """Each day one peer may still hold the files of half a day ago."""
    ca: Authority | None = None
    leaf, old, changes = None, None, 0
    for half_days in range(2 * 1460):
        now = START + half_days * DAY / 2
        fresh = pki.authority(ca, UID, now)
        changes += ca is not None and fresh.current != ca.current
        ca = fresh
        if leaf is None or not pki.leaf_is_good(leaf, ca, NAME, now):
            leaf = pki.new_leaf(ca, NAME, now)
        if old is not None and old != (leaf, ca.bundle):
            assert _trusted(leaf, old[1]) and _trusted(old[0], ca.bundle), now
        assert leaf.ends > now and ca.current.ends > now
        old = (leaf, ca.bundle)
    assert changes >= 2


def test_a_next_authority_signs_only_once_it_has_reached_every_bundle() -> None:
    ca = pki.authority(None, UID, START)
    now = ca.current.ends - pki.CA_NEXT_BEFORE
    announced = pki.authority(ca, UID, now)
    assert announced.next is not None
    signs_at = now + pki.PROPAGATION
    for early in (now, now + datetime.timedelta(minutes=1), now + pki.SKEW, signs_at - datetime.timedelta(seconds=1)):
        assert pki.authority(announced, UID, early) is announced, early - now
    assert pki.authority(announced, UID, signs_at).current == announced.next


def test_the_old_authority_leaves_the_bundle_after_a_leafs_lifetime() -> None:
    ca = pki.authority(None, UID, START)
    now = ca.current.ends - pki.CA_NEXT_BEFORE
    announced = pki.authority(ca, UID, now)
    promoted = pki.authority(announced, UID, now + pki.PROPAGATION)
    assert announced.next is not None and promoted.current == announced.next
    assert ca.current.certificate in promoted.bundle
    gone_at = now + pki.PROPAGATION + pki.LEAF_LIFETIME
    assert pki.authority(promoted, UID, gone_at - datetime.timedelta(seconds=1)) is promoted
    assert ca.current.certificate not in pki.authority(promoted, UID, gone_at).bundle
