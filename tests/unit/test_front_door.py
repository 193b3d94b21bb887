"""The front door listens from its first moment: pid 1 of a container is deaf to a signal without a handler."""

import subprocess
import sys
from pathlib import Path


def test_a_sigterm_while_a_component_is_imported_ends_the_process_in_order(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(30)\n"
        "def main(argv): print('imported, deaf'); return 0\n"
    )
    code = (
        "import sys, octavo.__main__ as door\ndoor.COMMANDS['router'] = ('slow', '')\nsys.exit(door.main(['router']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{code}"],
        capture_output=True,
        text=True,
        timeout=20,
    )
    # Not -SIGTERM, by which only a process that is not pid 1 would die.
    assert (done.returncode, done.stdout, done.stderr) == (143, "", "")
