"""An asv environment that measures any commit with the running Python: nothing is installed per commit.

The commit's tree is checked out beside the benchmarks, which import the models from there; torch and all else come from
the interpreter that runs asv. A commit's compiled parts are built by the commit itself, on first use.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from asv import environment


class CheckoutEnvironment(environment.Environment):
    tool_name = "checkout"

    def __init__(self, conf: Any, python: str, requirements: dict[str, str], tagged_env_vars: dict[Any, str]) -> None:
        self._requirements = requirements  # the base class reads it before it sets it
        super().__init__(conf, python, requirements, tagged_env_vars)

    @classmethod
    def matches(cls, python: str) -> bool:
        return True

    def check_presence(self) -> bool:
        return Path(self._path).is_dir()

    def _setup(self) -> None:
        Path(self._path).mkdir(parents=True, exist_ok=True)

    def install_project(self, conf: Any, repo: Any, commit_hash: str) -> None:
        if self._get_installed_commit_hash() != commit_hash:
            self._set_installed_commit_hash(None)  # what stands there is not a commit until the checkout is complete
            self.checkout_project(repo, commit_hash)
            self._set_installed_commit_hash(commit_hash)
        self._set_commit_hash(commit_hash)

    def find_executable(self, executable: str) -> str:
        if executable != "python":
            raise OSError(f"A checkout environment runs python only, not {executable!r}.")
        return sys.executable

    def run(self, args: list[str], **kwargs: Any) -> Any:
        env = dict(kwargs.pop("env", os.environ))
        return self.run_executable("python", args, env=env | {"DURNN_BENCH_TREE": self._build_root}, **kwargs)
