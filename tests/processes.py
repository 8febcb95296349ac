"""Commands as launchers start them, each process with one thread."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ONE_THREAD = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def torchrun(processes: int = 2) -> list[str]:
    """The words before a script or `-m module`; each run has a free port of its own."""
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
    return [*words, "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]


def launched(command: list[str], env: dict[str, str] | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
    env = ONE_THREAD | (env or {})
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=300, check=False, **options)


def found_by(processes: int, script: Path) -> list[dict[str, Any]]:
    """What the processes of a script wrote as JSON, each to the file $FOUND.$RANK."""
    done = launched([*torchrun(processes), str(script)], {"FOUND": str(script.with_suffix(""))})
    assert done.returncode == 0, done.stderr
    return [json.loads(script.with_suffix(f".{rank}").read_text()) for rank in range(processes)]
