"""What the models learn from: a registry of tasks behind one small interface.

import tasks
task = tasks.build("pmnist", permutation="exprnn")
for batch in task.batches("train", batch_size=32, seed=0, epoch=3):
    x, y, mask = tasks.unpack(batch)
"""

from tasks.base import IGNORE, Batch, Meter, SampledTask, Task, unpack
from tasks.download import CacheError, DataError, ExplicitSourceError
from tasks.registry import build, names, options, register, standin_of, stands_in_for

__all__ = [
    "IGNORE",
    "Batch",
    "CacheError",
    "DataError",
    "ExplicitSourceError",
    "Meter",
    "SampledTask",
    "Task",
    "build",
    "names",
    "options",
    "register",
    "standin_of",
    "stands_in_for",
    "unpack",
]
