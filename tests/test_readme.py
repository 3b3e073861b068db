"""The README's code runs, its files exist, its generated parts are true, and its test command is what CI calls."""

import re
import subprocess
import sys
from pathlib import Path

from reproduce.report import records
from reproduce.report.readme import generate

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_python_blocks_run_in_their_order():
    code = "\n".join(blocks("python")) + "\nprint(models.build('leaky', 2, 4))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "Leaky(2, 4)"


def test_scripts_and_modules_that_it_names_exist():
    for script in set(re.findall(r"python ((?:reproduce|asv_bench)/\w+\.py)", README)):
        assert (ROOT / script).is_file(), script
    for module in set(re.findall(r"python -m (\w[\w.]*)", README)) - {"venv", "pip"}:
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), module


def test_ci_runs_the_test_command():
    (command,) = (block.strip() for block in blocks("bash") if "bin/tox" in block)
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == command


def test_generated_parts_are_true():
    known = records.read_all(ROOT / "results" / "records").good
    assert generate(README, known) == README, "run `python -m reproduce.report.readme`"


def test_links_lead_somewhere():
    for target in set(re.findall(r"\]\(((?!http)[^)#]+)\)", README)):
        assert (ROOT / target).exists(), target
