"""A command of the test of Ray: the same six runs each time it is started. python ray_driver.py ADDRESS FOLDER"""

import sys
from pathlib import Path

from run_samples import make_place, make_run

from reproduce.execute.local import stopping_on_signals
from reproduce.execute.ray_cluster import RayCluster
from reproduce.plan.imports import Import
from reproduce.train import provenance
from reproduce.train.outcome import Outcome

SLOWLY = """
import time

from reproduce.train.loop import Training

original = Training.update


def update(self):
    original(self)
    time.sleep(0.03)


Training.update = update
"""


def six_runs(folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "slowly.py").write_text(SLOWLY)
    runs = [make_run(seed, training={"updates": 200}, evaluation={"every": 100}) for seed in range(6)]
    slowly = (Import(module="slowly", folder=str(folder)),)
    return [run.model_copy(update={"imports": slowly}) for run in runs]


def tell(run, event):
    if not isinstance(event, Outcome):
        return
    print(run.seed, event.status, event.message, flush=True)


if __name__ == "__main__":
    address, folder = sys.argv[1], Path(sys.argv[2])
    place = make_place(folder, checkpoint_updates=10, origin=provenance.origin())
    with stopping_on_signals() as stop:
        RayCluster(address, 0, "cpu", 0).do(six_runs(folder), place, tell, stop)
    sys.exit(3 if stop.reason else 0)
