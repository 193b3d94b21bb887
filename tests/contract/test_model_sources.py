"""Each scheme of a model's uri is found by a worker, in a volume of the operator where it exists only in a cluster."""

import pytest

from octavo.operator.specs.model_volumes import VOLUMES
from octavo.shared.model_uri import SCHEMES, parse
from octavo.worker.errors import ModelError
from octavo.worker.models.sources.resolve import SOURCES, resolve


def test_a_worker_reads_paths_and_every_scheme() -> None:
    assert set(SOURCES) == {None, *SCHEMES}


def test_the_operator_mounts_what_exists_only_in_a_cluster() -> None:
    assert {name for name, scheme in SCHEMES.items() if not scheme.local} <= set(VOLUMES) <= set(SCHEMES)


@pytest.mark.parametrize(
    ("text", "scheme", "rest"),
    [("pvc://a/b", "pvc", "a/b"), ("./a b", None, "./a b"), ("://a", "", "a"), ("file:///a%20b", "file", "/a%20b")],
)
def test_a_uri_is_what_stands_before_and_after_its_sign(text: str, scheme: str | None, rest: str) -> None:
    uri = parse(text)
    assert (uri.text, uri.scheme, uri.rest) == (text, scheme, rest)


@pytest.mark.parametrize(("text", "scheme"), [("s3://bucket/key", "s3"), ("://a", "")])
def test_a_scheme_that_a_worker_does_not_read_is_refused_with_the_others(text: str, scheme: str) -> None:
    with pytest.raises(ModelError) as caught:
        resolve(text)
    expected = f"the scheme {scheme!r} is not supported; use bundled://, file:// or a path"
    assert (caught.value.file, caught.value.message) == (text, expected)
