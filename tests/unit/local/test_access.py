"""Keys, origins and strictness of `octavo run` are given on to its router, a key never as a flag."""

import re
from pathlib import Path

import pytest

from octavo.errors import UsageError
from octavo.local.commands import Sockets, router_argv
from octavo.local.flags import parse_args
from octavo.local.service import Service
from octavo.router.parsers.parser_flags import ParserFlags
from octavo.router.process.config import Config, parse_arguments
from octavo.shared.router_settings import RouterSettings

ON_CPU = ["--device", "cpu"]


def test_a_file_origins_and_strictness_arrive(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("# mine\nfirst\nsecond\n")
    given = ["--api-keys-file", str(keys), "--cors-origin", "https://a.example", "--cors-origin", "*", "--strict"]
    settings = parse_args([*ON_CPU, *given])
    config = parse_arguments(router_argv(settings, 8000, None, [Sockets(tmp_path, 0)])[1:])
    assert (config.api_keys_file, config.settings.strict) == (keys, True)
    assert config.settings.cors_origins == ("https://a.example", "*")
    assert settings.api_key == "first", "it asks with one of them itself"


def test_a_key_from_a_flag_reaches_the_router_in_a_file_of_ones_own(tmp_path: Path) -> None:
    settings = parse_args([*ON_CPU, "--port", "8000", "--api-key", "secret-key"])
    kept = Service(settings, tmp_path)._settings
    assert kept.keys_file is not None and kept.keys_file.read_text() == "secret-key\n"
    assert kept.keys_file.stat().st_mode & 0o077 == 0
    assert "secret-key" not in " ".join(router_argv(kept, 8000, None, [Sockets(tmp_path, 0)]))


def test_without_these_flags_the_router_gets_none(tmp_path: Path) -> None:
    settings = parse_args(ON_CPU)
    config = parse_arguments(router_argv(settings, 8000, None, [Sockets(tmp_path, 0)])[1:])
    assert (config.api_keys_file, config.settings) == (None, RouterSettings())


def test_what_the_spec_says_of_clients_reaches_the_router_and_flags_overrule_it(tmp_path: Path) -> None:
    spec = tmp_path / "service.yaml"
    spec.write_text(
        "apiVersion: octavo.dev/v1alpha1\nkind: InferenceService\nmetadata: {name: chat}\nspec:\n"
        "  model: {uri: 'bundled://smollm2-135m-instruct'}\n  router: {clientPriority: true, maxConnections: 9}\n"
    )

    def config(*given: str) -> tuple[bool, int]:
        settings = parse_args([*ON_CPU, *given])
        made = parse_arguments(router_argv(settings, 8000, None, [Sockets(tmp_path, 0)])[1:])
        return made.settings.client_priority, made.settings.max_connections

    assert config("-f", str(spec)) == (True, 9)
    assert config("-f", str(spec), "--max-connections", "10") == (True, 10)
    assert config("--client-priority") == (True, 8192) and config() == (False, 8192)


def test_origins_strictness_and_parsers_of_the_spec_reach_the_router_and_flags_overrule_them(tmp_path: Path) -> None:
    spec = tmp_path / "service.yaml"
    spec.write_text(
        "apiVersion: octavo.dev/v1alpha1\nkind: InferenceService\nmetadata: {name: chat}\nspec:\n"
        "  model: {uri: 'bundled://smollm2-135m-instruct'}\n  router:\n    corsOrigins: ['https://a.example']\n"
        "    strict: true\n    toolParser: hermes\n    reasoningParser: think\n    policy: round-robin\n"
    )

    def config(*given: str) -> Config:
        settings = parse_args([*ON_CPU, "-f", str(spec), *given])
        return parse_arguments(router_argv(settings, 8000, None, [Sockets(tmp_path, 0)])[1:])

    assert config().settings.policy == "round-robin"
    assert config("--policy", "prefix-affinity").settings.policy == "prefix-affinity"
    assert (config().settings.cors_origins, config().settings.strict) == (("https://a.example",), True)
    assert config().parsers == ParserFlags("hermes", "think")
    overruled = config("--cors-origin", "*", "--tool-parser", "none", "--reasoning-parser", "none")
    assert (overruled.settings.cors_origins, overruled.parsers) == (("*",), ParserFlags("none", "none"))


def test_a_spec_that_names_a_secret_of_keys_needs_them_otherwise_here(tmp_path: Path) -> None:
    spec = tmp_path / "service.yaml"
    spec.write_text(
        "apiVersion: octavo.dev/v1alpha1\nkind: InferenceService\nmetadata: {name: chat}\nspec:\n"
        "  model: {uri: 'bundled://smollm2-135m-instruct'}\n  router: {apiKeys: {secretName: clients}}\n"
    )
    with pytest.raises(UsageError, match=r"spec\.router\.apiKeys.*--api-keys-file"):
        parse_args([*ON_CPU, "-f", str(spec)])
    assert parse_args([*ON_CPU, "-f", str(spec), "--api-key", "k"]).api_key == "k"


def test_an_empty_file_is_refused_by_its_flag(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("# none\n")
    with pytest.raises(UsageError, match=r"--api-keys-file .*no key"):
        parse_args([*ON_CPU, "--api-keys-file", str(tmp_path / "keys")])


def test_a_policy_that_does_not_exist_is_refused_with_the_choices(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for parse_flags in (lambda: parse_args(["--policy", "x"]), lambda: parse_arguments(["--policy", "x"])):
        with pytest.raises(SystemExit):
            parse_flags()
        assert re.search(
            r"--policy: invalid choice: 'x' \(choose from '?prefix-affinity'?, '?round-robin", capsys.readouterr().err
        )
    spec = tmp_path / "service.yaml"
    spec.write_text(
        "apiVersion: octavo.dev/v1alpha1\nkind: InferenceService\nmetadata: {name: chat}\nspec:\n"
        "  model: {uri: 'bundled://smollm2-135m-instruct'}\n  router: {policy: x}\n"
    )
    with pytest.raises(UsageError, match=r"spec.router.policy: .*prefix-affinity, round-robin"):
        parse_args([*ON_CPU, "-f", str(spec)])
