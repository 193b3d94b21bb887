"""A client process of loads.py that streams completions through the `openai` package instead of a raw connection.

until_s of a job is not observed.
"""

import argparse
import asyncio
import time
from functools import partial

import openai
import uvloop
from streams import TIMEOUT_S, Answer, Ask, Job, serve_share


class Sender:
    """Prepares jobs; all of a process share one client, as in an application."""

    def __init__(self) -> None:
        self._client: openai.AsyncOpenAI | None = None

    def prepare(self, job: Job, model: str, port: int) -> Ask:
        if self._client is None:
            url = f"http://127.0.0.1:{port}/v1"
            self._client = openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=TIMEOUT_S)
        return partial(_one, self._client, job, model)


async def _one(client: openai.AsyncOpenAI, job: Job, model: str, begin: float) -> Answer:
    await asyncio.sleep(begin + job.at_s - time.monotonic())
    sent, frames, tokens = time.monotonic() - begin, list[float](), 0
    try:
        stream = await client.completions.create(
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
    uvloop.run(serve_share(Sender().prepare))
