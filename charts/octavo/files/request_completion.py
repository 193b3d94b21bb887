"""Requests one completion, for `helm test`: request_completion.py URL [FILE_OF_KEYS]. Ends with one line and 0 or 1."""

import http.client
import json
import sys
import time
import urllib.error
import urllib.request

PATIENCE_S = 60  # for a service that is still starting


def headers(keys):
    """The first key of the file, as clients send it."""
    if keys is None:
        return {}
    with open(keys) as file:
        found = [line.strip() for line in file if line.strip() and not line.strip().startswith("#")]
    if not found:
        raise SystemExit(f"the Secret of API keys has no key in its entry {keys.rpartition('/')[2]}")
    return {"Authorization": f"Bearer {found[0]}"}


def asked(url, sent, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {**sent, "Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def answer(base, sent):
    """(name of the model, text of its answer)."""
    model = asked(base + "/models", sent)["data"][0]["id"]
    question = {"role": "user", "content": "What is the capital of France?"}
    body = {"model": model, "messages": [question], "max_tokens": 16, "temperature": 0}
    return model, asked(base + "/chat/completions", sent, body)["choices"][0]["message"]["content"]


def problem(error):
    """What went wrong, in words."""
    if isinstance(error, urllib.error.HTTPError):
        if error.code == 401:
            return "it needs an API key: --set test.apiKeys.secretName=NAME with a Secret in the release's namespace"
        try:
            return f"{error.code} {json.load(error)['error']['message']}"
        except (ValueError, KeyError, TypeError):
            return f"{error.code} {error.reason}"
    if isinstance(error, urllib.error.URLError):
        return f"{error.reason}; is there a service of this name? --set test.service=NAME, test.namespace=NAMESPACE"
    return f"an answer of another form than OpenAI's: {type(error).__name__} {error}"


def main(base, keys=None):
    sent, end = headers(keys), time.monotonic() + PATIENCE_S
    while True:
        try:
            model, text = answer(base, sent)
        except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError) as error:
            again = isinstance(error, OSError) and getattr(error, "code", 503) == 503 and time.monotonic() < end
            if again:
                time.sleep(2)
                continue
            raise SystemExit(f"{base}: {problem(error)}") from None
        if not text.strip():
            raise SystemExit(f"{base}: {model} answered without text")
        print(f"{model} says: {text.strip()}")
        return


main(*sys.argv[1:])
