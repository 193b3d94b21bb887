"""A client process of loads.py that streams completions through the `openai` package instead of a raw connection."""

import argparse
import time
from functools import partial

import openai
import uvloop
from streams import TIMEOUT_S, Answer, Ask, Job, serve_share

_CLIENTS: dict[int, openai.AsyncOpenAI] = {}  # by port


def _client(port: int) -> openai.AsyncOpenAI:
    if port not in _CLIENTS:
        url = f"http://127.0.0.1:{port}/v1"
        _CLIENTS[port] = openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=TIMEOUT_S)
    return _CLIENTS[port]


def _prepare(job: Job, model: str, port: int) -> Ask:
    return partial(_one, job, model, port)


async def _one(job: Job, model: str, port: int, begin: float) -> Answer:
    sent, frames, tokens = time.monotonic() - begin, list[float](), 0
    try:
        stream = await _client(port).completions.create(
            model=model, prompt=job.prompt, max_tokens=job.new_tokens, temperature=0, stream=True,
            stream_options={"include_usage": True}, extra_body={"ignore_eos": True},
        )  # fmt: skip
        async for chunk in stream:
            if chunk.usage is not None:
                tokens = chunk.usage.completion_tokens
            if chunk.choices:
                frames.append(round(time.monotonic() - begin, 6))
    except openai.OpenAIError as error:
        return Answer(sent, frames, tokens, False, str(error))
    return Answer(sent, frames, tokens, tokens > 0)


if __name__ == "__main__":
    argparse.ArgumentParser(description="A client process of loads.py, which tells it everything.").parse_args()
    uvloop.run(serve_share(_prepare))
