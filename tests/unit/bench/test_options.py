"""A wrong option ends the command with 2 and its name; the right ones become what they say."""

import argparse
import math
import subprocess
import sys
from pathlib import Path

import pytest

from octavo import bench
from octavo.bench import options, serve_options
from octavo.bench.arithmetic.datasets import RandomLengths, Repetition
from octavo.bench.local import BUNDLED, model_folder, split
from octavo.bench.serve_options import ServeOptions
from octavo.errors import UsageError


def parse(*argv: str, **environment: str) -> ServeOptions:
    return serve_options.parse(list(argv), environment)


WRONG = [
    ("--num-prompts", "0"),
    ("--num-prompts", "many"),
    ("--request-rate", "0"),
    ("--request-rate", "-1"),
    ("--request-rate", "nan"),
    ("--burstiness", "0"),
    ("--max-concurrency", "0"),
    ("--random-range-ratio", "1"),
    ("--random-range-ratio", "-0.1"),
    ("--random-output-len", "0"),
    ("--custom-output-len", "0"),
    ("--prefix-repetition-num-prefixes", "0"),
    ("--dataset-name", "sonnet"),
    ("--backend", "tgi"),
    ("--port", "70000"),
    ("--temperature", "-1"),
    ("--temperature", "inf"),
    ("--top-p", "0"),
    ("--top-k", "0"),
    ("--percentile-metrics", "ttft,speed"),
    ("--metric-percentiles", "50,101"),
    ("--metric-percentiles", ""),
    ("--goodput", "itl:5"),
    ("--goodput", "ttft"),
    ("--goodput", "ttft:-1"),
    ("--goodput", "ttft:soon"),
    ("--header", "novalue"),
    ("--extra-body", "[1]"),
    ("--extra-body", "{"),
    ("--ready-check-timeout-sec", "-1"),
    ("--seed", "-1"),
    ("--no-such-option", "1"),
]


@pytest.mark.parametrize(("option", "value"), WRONG)
def test_a_wrong_value_is_refused_by_the_name_of_its_option(
    capsys: pytest.CaptureFixture[str], option: str, value: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        bench.main(["serve", option, value])
    assert ended.value.code == 2 and option in capsys.readouterr().err


AT_ODDS = [
    (["--base-url", "localhost:8000"], "--base-url"),
    (["--base-url", "http://[::1"], "--base-url"),
    (["--base-url", "http://a:b"], "--base-url"),
    (["--endpoint", "/v1/chat/completions"], "--endpoint"),
    (["--backend", "openai-chat", "--endpoint", "/v1/completions"], "--endpoint"),
    (["--endpoint", "v1/completions"], "--endpoint"),
    (["--dataset-path", "x.json"], "--dataset-path"),
    (["--dataset-name", "sharegpt"], "--dataset-path"),
    (["--dataset-name", "prefix_repetition", "--input-len", "5"], "--input-len"),
    (["--save-detailed"], "--save-detailed"),
    (["--result-dir", "x"], "--result-dir"),
    (["--header", "a b=c"], "--header"),
    (["--header", "X-A=\x01"], "--header"),
    (["--api-key", "\u00e9"], "--api-key"),
    (["--plot", "picture.bmp"], "--plot"),
    (["--plot", "/no/such/folder/out.png"], "--plot"),
    (["--tokenizer", "/no/such/folder"], "--tokenizer"),
    (["--backend", "openai-chat"], "--tokenizer"),
    (["--dataset-name", "prefix_repetition", "--num-prompts", "3"], "--num-prompts"),
    (["--dataset-name", "custom", "--dataset-path", "/no/such/file"], "--dataset-path"),
]


@pytest.mark.parametrize(("arguments", "option"), AT_ODDS)
def test_options_at_odds_are_refused_by_name(
    capsys: pytest.CaptureFixture[str], arguments: list[str], option: str
) -> None:
    assert bench.main(["serve", *arguments]) == 2
    assert capsys.readouterr().err.startswith(f"octavo bench serve: {option}")


def test_without_matplotlib_a_plot_is_refused_before_the_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("octavo.bench.plot.find_spec", lambda name: None)
    assert bench.main(["serve", "--plot", "out.png"]) == 2
    said = capsys.readouterr().err
    assert "--plot" in said and "'matplotlib' is missing; install octavo[bench]" in said


def test_a_missing_package_is_named_with_the_extra_that_brings_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> object:
        raise ModuleNotFoundError(name="aiohttp")

    monkeypatch.setattr("octavo.bench.import_module", missing)
    assert bench.main(["serve"]) == 1
    assert "'aiohttp' is missing; install octavo[bench]" in capsys.readouterr().err


def test_without_options_it_is_vllms_run() -> None:
    seen = parse()
    target = seen.target
    assert (target.base_url, target.endpoint, target.model) == (
        "http://127.0.0.1:8000",
        "/v1/completions",
        None,
    )
    assert (seen.dataset.num_prompts, seen.dataset.seed) == (1000, 0)
    assert seen.dataset.lengths == RandomLengths(1024, 128, 0.0, 0)
    assert (seen.load.request_rate, seen.load.burstiness, seen.load.max_concurrency) == (math.inf, 1.0, None)
    assert (seen.shown, seen.shares, seen.warmups) == (("ttft", "tpot", "itl"), (99.0,), 0)
    assert seen.ignore_eos and seen.extra == {} and seen.target.headers == {}


def test_every_option_arrives_where_it_is_used() -> None:
    seen = parse(
        *"--backend openai-chat --host ::1 --port 81 --model m --request-rate 3 --burstiness 2 --num-warmups 4".split(),
        *"--temperature 0 --top-p 0.5 --top-k -1 --goodput ttft:500 tpot:50 --percentile-metrics e2el,itl".split(),
        *"--metric-percentiles 50,90,99 --header X-A=1 X-B=2=3 --api-key k --insecure --seed 5".split(),
        *("--extra-body", '{"top_k": 7, "seed": 1}', "--max-concurrency", "9", "--ignore-eos"),
        *"--dataset-name prefix_repetition --prefix-repetition-prefix-len 9 --output-len 6".split(),
    )
    assert (seen.target.base_url, seen.target.endpoint) == (
        "http://[::1]:81",
        "/v1/chat/completions",
    ) and seen.target.chat
    assert seen.target.headers == {"Authorization": "Bearer k", "X-A": "1", "X-B": "2=3"}
    assert seen.extra == {"temperature": 0.0, "top_p": 0.5, "top_k": 7, "seed": 1}
    assert seen.objectives == {"ttft": 500.0, "tpot": 50.0} and not seen.target.verify
    assert (seen.shown, seen.shares) == (("e2el", "itl"), (50.0, 90.0, 99.0))
    assert seen.dataset.lengths == Repetition(9, 256, 10, 6)
    assert (seen.load.request_rate, seen.load.burstiness, seen.load.max_concurrency) == (3.0, 2.0, 9)


def test_the_key_of_the_environment_is_used_unless_another_is_given() -> None:
    assert parse(OPENAI_API_KEY="e").target.headers == {"Authorization": "Bearer e"}
    assert parse("--api-key", "k", OPENAI_API_KEY="e").target.headers == {"Authorization": "Bearer k"}
    assert parse("--header", "Authorization=x", OPENAI_API_KEY="e").target.headers == {"Authorization": "x"}


def test_a_files_output_length_is_its_own_option_or_the_common_one() -> None:
    common = ["--dataset-path", "f", "--dataset-name"]
    assert parse(*common, "custom").dataset.output_len == 256
    assert parse(*common, "custom", "--custom-output-len", "-1").dataset.output_len is None
    assert parse(*common, "sharegpt").dataset.output_len is None
    assert parse(*common, "sharegpt", "--sharegpt-output-len", "5").dataset.output_len == 5
    assert parse(*common, "sharegpt", "--output-len", "6").dataset.output_len == 6
    assert not parse(*common, "custom").ignore_eos


@pytest.mark.parametrize("command", ["serve", "throughput", "latency"])
def test_each_command_explains_itself(capsys: pytest.CaptureFixture[str], command: str) -> None:
    with pytest.raises(SystemExit) as ended:
        bench.main([command, "--help"])
    assert ended.value.code == 0 and f"usage: octavo bench {command}" in capsys.readouterr().out


def test_an_unknown_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["train"]) == 2 and "serve, throughput, latency" in capsys.readouterr().err
    assert bench.main([]) == 2 and bench.main(["-h"]) == 0


def test_what_follows_two_dashes_is_octavo_runs() -> None:
    assert split(["--num-iters", "1", "--", "--device", "cpu", "--"]) == (
        ["--num-iters", "1"],
        ["--device", "cpu", "--"],
    )
    assert split(["a"]) == (["a"], [])


@pytest.mark.parametrize("command", ["throughput", "latency"])
@pytest.mark.parametrize("model", ["/no/such/model", "bundled://unheard-of", "file:///no/such"])
def test_a_model_that_is_not_there_is_refused_before_a_server_starts(
    capsys: pytest.CaptureFixture[str], command: str, model: str
) -> None:
    assert bench.main([command, "--model", model]) == 2
    assert f"octavo bench {command}: --model" in capsys.readouterr().err


def test_a_models_folder_is_found_by_path_and_by_uri(tmp_path: Path) -> None:
    folder = tmp_path / "my model"
    folder.mkdir()
    assert model_folder(str(folder)) == model_folder(folder.as_uri()) == folder
    assert BUNDLED.startswith("bundled://")
    with pytest.raises(UsageError, match="--model"):
        model_folder(str(folder / "none"))


def test_a_number_says_what_it_must_be() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="above 0 and at most 1"):
        options.number(0, 1, beyond=True)("2")


def test_the_load_generator_needs_neither_torch_nor_the_server() -> None:
    code = (
        "import sys\n"
        "for name in ('torch', 'numpy', 'matplotlib', 'grpc'): sys.modules[name] = None\n"
        "import octavo.bench.serve, octavo.bench.throughput, octavo.bench.latency\n"
        "assert not [m for m in sys.modules if m.startswith(('octavo.worker', 'octavo.router', 'octavo.local'))]"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
