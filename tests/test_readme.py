"""The README's code runs, its files exist, and its test command is the one that CI calls."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_python_blocks_run_in_their_order():
    code = "\n".join(blocks("python")) + "\nprint(models.build('rnn-half', 2, 4))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "HalfRNN(2, 4)"


def test_scripts_and_modules_that_it_names_exist():
    for script in set(re.findall(r"python ((?:reproduce|asv_bench)/\w+\.py)", README)):
        assert (ROOT / script).is_file(), script
    for module in set(re.findall(r"python -m (\w[\w.]*)", README)) - {"venv", "pip"}:
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), module


def test_ci_runs_the_test_command():
    (command,) = (block.strip() for block in blocks("bash") if "tox" in block)
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == command
