"""What must hold before any test module is imported."""

import os

# OpenMP threads that spin at barriers starve each other on a busy machine: a test of a second then takes a minute.
# libgomp reads this when torch is loaded; child processes inherit it.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
