"""Each model is loaded and asked once: by transformers for the right answers, by us for all tests."""

import pytest
from support.models.checkpoints import random_checkpoint
from support.models.subject import Subject, make_subject

from octavo import bundled


@pytest.fixture(scope="session", params=["smollm2", "random"])
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    if request.param == "smollm2":
        return make_subject(bundled.ensure("smollm2-135m-instruct"))
    return make_subject(random_checkpoint(tmp_path_factory.mktemp("model"), seed=1))
