"""From nothing to an answer, by the commands that the README gives."""

import openai
import pytest
from support.cluster.bed import wait_until
from support.cluster.deployed import ROOT, SERVES_S, Release, Service
from support.patience import PATIENCE_S, Bound

QUESTION = "What is the capital of France?"


def test_a_stranger_installs_applies_waits_and_reads_that_paris_is_the_capital(
    octavo: Release, capsys: pytest.CaptureFixture[str]
) -> None:
    bound = Bound(SERVES_S)
    octavo.kubectl("apply", "-f", str(ROOT / "examples" / "minimal.yaml"))
    octavo.kubectl("wait", "--for=condition=Ready", "infsvc/chat", f"--timeout={SERVES_S + PATIENCE_S:.0f}s")
    assert not bound.over, bound
    took_s = bound.kept()
    chat = Service(octavo, "chat")
    stream = chat.client().chat.completions.create(
        model="chat", messages=[{"role": "user", "content": QUESTION}], stream=True, temperature=0
    )
    answer = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    with capsys.disabled():
        print(f"\nfrom apply to Ready: {took_s:.1f} s; {QUESTION} {answer}")
    assert "Paris" in answer

    header, row = octavo.kubectl("get", "infsvc").splitlines()[:2]
    assert header.split() == ["NAME", "READY", "UPDATED", "REASON", "MODEL", "URL", "AGE"]
    url = f"http://chat.{octavo.namespace}.svc"
    assert row.split()[:6] == ["chat", "1/1", "1", "Serving", "bundled://smollm2-135m-instruct", url]
    octavo.kubectl("wait", "--for=condition=UpToDate", "infsvc/chat", f"--timeout={PATIENCE_S:.0f}s")

    logs = octavo.helm("test", "octavo", "--logs")
    assert "Succeeded" in logs and "chat says: " in logs
    chat.delete()
    wait_until(lambda: not octavo.left("chat"), 60, "the service is gone")


def test_the_models_list_and_a_wrong_model_name_are_answered_as_by_openai(letters: Service) -> None:
    client = letters.client()
    assert [model.id for model in client.models.list()] == ["letters"]
    with pytest.raises(openai.NotFoundError, match="other"):
        client.completions.create(model="other", prompt="a", max_tokens=1)
