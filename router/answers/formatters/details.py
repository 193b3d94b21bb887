"""Log-probabilities, ids and usage beside the text of OpenAI's completions and chats."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from octavo.router.answers.delta import Delta, Usage
from octavo.router.text.logprobs import Body, TokenEntry, TokenNamer, prompt_body, unpack

RenderLogprobs = Callable[[Sequence[TokenEntry], int, TokenNamer], Body]


@dataclass(frozen=True, slots=True)
class DetailOptions:
    """Which details are shown. top: likeliest tokens beside each, None: no log-probabilities; prompt_top: the same of
    the prompt's table; asked_top: what the engine was asked for of the prompt."""

    names: TokenNamer
    top: int | None = None
    prompt_top: int | None = None
    asked_top: int = 0
    token_ids: bool = False

    def logprobs(self, entries: Sequence[TokenEntry], render: RenderLogprobs) -> Body | None:
        return None if self.top is None else render(entries, self.top, self.names)

    def of_prompt(self, delta: Delta) -> Body:
        """`prompt_token_ids`, `prompt_logprobs`: what is asked of them, in vLLM's form."""
        shown: Body = {}
        if delta.prompt_ids is not None:
            shown["prompt_token_ids"] = delta.prompt_ids
        if self.prompt_top is not None and delta.prompt_scores is not None:
            scored = unpack(delta.prompt_scores, self.asked_top)
            shown["prompt_logprobs"] = prompt_body(scored, self.prompt_top, self.names)
        return shown


def usage_body(usage: Usage) -> Body:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
    }
