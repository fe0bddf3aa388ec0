"""The script for GPUs works before a GPU is at hand."""

import subprocess
import sys
from pathlib import Path


def test_the_numbers_of_a_device_are_checked():
    script = Path(__file__).with_name("gpu_check.py")
    done = subprocess.run([sys.executable, script, "--only-numbers", "--designs", "64"], capture_output=True, text=True)
    assert done.returncode == 0 and "all numbers agree" in done.stdout, done.stdout + done.stderr
