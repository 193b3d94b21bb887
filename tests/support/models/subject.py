"""A model with its right answers, which transformers has confirmed, and our runner, to be asked in many ways.

The answers come from one batch of all prompts: no test has to ask for that again.
"""

from dataclasses import dataclass
from pathlib import Path

from support.models.oracle import Oracle
from support.worker.engine import LocalEngine
from tokenizers import Tokenizer

from octavo.worker.models.folder.checkpoint import inspect
from octavo.worker.runner.base import RunnerConfig
from octavo.worker.runner.cpu.runner import Runner
from octavo.worker.scheduler.step_length import StepLength

TOKENS = 64
BOUNDARIES = (15, 16, 17, 31, 32, 33)  # around the ends of blocks
TEXTS = (
    "The capital of France is",
    "Once upon a time, in a village at the foot of a mountain, there lived",
    "def fibonacci(n):\n",
    "The three laws of thermodynamics say that",
    "Water boils at 100 degrees because",
    "import numpy as np\n\nx = np.linspace(0, 1, 100)\n",
    "In 1969, the first people walked on the Moon. They were",
    "<|im_start|>user\nWhat is the capital of Italy?<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\nWrite a short poem about the sea.<|im_end|>\n<|im_start|>assistant\n",
    "A recipe for bread. Ingredients: flour, water, yeast, salt. Method:",
    "Q: What is 7 times 8?\nA:",
    "The difference between a list and a tuple in Python is that",
    "Dear Sir or Madam,\n\nI am writing to",
    "Photosynthesis is the process by which",
    "1, 2, 3, 4, 5,",
    "To be, or not to be, that is the question: whether",
    "The stock market fell sharply on Monday after",
    "SELECT name, COUNT(*) FROM orders",
    "The quick brown fox jumps over the lazy dog. " * 12 + "Then",
    "Trees grow. Rivers flow. Birds sing. " * 20 + "And in the end",
)


@dataclass(frozen=True)
class Subject:
    """A model, its right answers, and our runner of it. prompts[i] continues with answers[i].

    largest_batch: of the steps that gave the answers. prefixed: for each boundary n, the first n tokens of a text of
    its own, then the same n and another end.
    """

    runner: Runner
    oracle: Oracle
    prompts: list[list[int]]
    answers: list[list[int]]
    prefixed: dict[int, tuple[list[int], list[int]]]
    prefixed_answers: dict[int, tuple[list[int], list[int]]]
    eos_ids: tuple[int, ...]
    largest_batch: int


def make_subject(folder: Path) -> Subject:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    prompts = [tokenizer.encode(text).ids for text in TEXTS]
    long, end = max(prompts, key=len), prompts[3][:5]
    texts = {size: long[offset : offset + size] for offset, size in enumerate(BOUNDARIES)}
    prefixed = {size: (text, text + end) for size, text in texts.items()}
    runner, oracle = Runner(RunnerConfig(folder, max_requests=64, kv_cache_bytes=512 << 20, threads=1)), Oracle(folder)
    eos_ids = inspect(folder).eos_ids
    asked = [*prompts, *(prompt for pair in prefixed.values() for prompt in pair)]
    engine = LocalEngine(
        runner, step_length=StepLength(interval_s=1e6)
    )  # a slow machine may not spread the prompts out
    answers = [answer.ids for answer in engine.generate(asked, TOKENS, stop_ids=eos_ids)]
    for prompt, answer in zip(asked, answers, strict=True):
        oracle.confirm(prompt, answer, TOKENS)
    rest = iter(answers[len(prompts) :])
    return Subject(
        runner=runner,
        oracle=oracle,
        prompts=prompts,
        answers=answers[: len(prompts)],
        prefixed=prefixed,
        prefixed_answers={size: (next(rest), next(rest)) for size in BOUNDARIES},
        eos_ids=eos_ids,
        largest_batch=engine.largest_batch,
    )
