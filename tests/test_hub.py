"""``torch.hub.load`` from a local path gives any model of the zoo."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import models

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", models.names())
def test_every_model_is_an_entry(name):
    options = {"input_size": 3, "hidden_size": 4, "length": 6}
    if "skeleton" in models.needs(name):
        options["input_size"] = models.registry.SKELETON_SIZE
    net = torch.hub.load(str(ROOT), name.replace("-", "_"), source="local", **options)
    assert type(net) is models.registry.ZOO.entry(name).cls


def test_a_layer_needs_torch_and_numpy_alone(tmp_path):
    """Everything else that the suite uses is made unimportable."""
    code = f"""
import importlib.util, sys, torch
class Nothing:
    def create_module(self, spec):
        raise ModuleNotFoundError(spec.name)
    def exec_module(self, module):
        pass
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in {{"pydantic", "rich", "tyro", "scipy", "seaborn", "datasets", "safetensors", "matplotlib", "pandas",
                    "pyarrow", "filelock", "huggingface_hub", "altair", "triton"}}:
            return importlib.util.spec_from_loader(name, self)
sys.meta_path.insert(0, Nothing())
net = torch.hub.load({str(ROOT)!r}, "durnn", source="local", input_size=2, hidden_size=8, length=10)
y, state = net(torch.randn(10, 3, 2))
y.sum().backward()
net.constrain_()
print(tuple(y.shape))
"""
    environment = os.environ | {"TORCH_HOME": str(tmp_path), "PYTHONPATH": ""}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "(10, 3, 8)"
