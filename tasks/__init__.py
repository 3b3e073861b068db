"""What the models learn from: a registry of tasks behind one small interface.

import tasks
task = tasks.build("pmnist", permutation="exprnn")
for x, y in task.batches("train", batch_size=32, seed=0, epoch=3): ...
"""

from tasks.base import IGNORE, Meter, SampledTask, Task
from tasks.registry import build, names, options, register

__all__ = ["IGNORE", "Meter", "SampledTask", "Task", "build", "names", "options", "register"]
