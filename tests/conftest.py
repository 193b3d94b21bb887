"""What must hold before any test module is imported."""

import gc
import os
import signal

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import engine

# OpenMP threads that spin at barriers starve each other on a busy machine: a test of a second then takes a minute.
# libgomp reads this when torch is loaded; child processes inherit it.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# A shell ignores interrupts in what it starts in the background, and processes inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine makes examples slow, not wrong; pytest's own timeout ends one that hangs.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# Shrinking may take as long as that timeout, and a failure would then look like a hang. There is no setting for it.
assert hasattr(engine, "MAX_SHRINKING_SECONDS")
engine.MAX_SHRINKING_SECONDS = 60

# A tenth of the CPU seconds would go into looking for garbage among what is imported and collected, time and again.
gc.set_threshold(10_000, 20, 20)


@pytest.fixture(scope="session", autouse=True)
def imports_are_kept() -> None:
    gc.collect()
    gc.freeze()
