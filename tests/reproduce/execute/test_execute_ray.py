"""A Ray cluster: what nodes must have in common, and runs that outlive workers, nodes and the command."""

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from ray_driver import six_runs
from run_samples import make_place

from reproduce.cli import Arguments, make_workers
from reproduce.execute import ray_cluster
from reproduce.execute.local import Inline
from reproduce.plan.runs import ROOT
from reproduce.report import records
from reproduce.report.estimates import memory_needed
from reproduce.train import checkpoint, lease, provenance
from reproduce.train.outcome import Stop

HERE = Path(__file__).parent
ENVIRONMENT = os.environ | {
    "PYTHONPATH": os.pathsep.join([str(ROOT), str(HERE), str(HERE.parent)]), "OMP_NUM_THREADS": "1",
    "RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "DURNN_LEASE_SECONDS": "20",
    "RAY_worker_niceness": "0",  # else Ray's workers come after everybody else on a busy machine
}  # fmt: skip


def found_on_a_node(**changes):
    return {"shared": True, "problem": "", "versions": ray_cluster.versions(), "digest": "d"} | changes


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"shared": False}, "node n1 does not see .* give folders that all nodes share with --runs and --results"),
        ({"problem": "ModuleNotFoundError: no reproduce"}, "node n1 cannot use the checkout .*: ModuleNotFoundError"),
        ({"versions": {"python": "3.9", "torch": "1.0"}}, "other versions than this machine: python 3.9 instead of"),
        ({"digest": "e"}, "node n1 has other code"),
    ],
)
def test_a_node_that_does_not_fit_is_one_sentence(tmp_path, changes, sentence):
    place = make_place(tmp_path, origin=replace(provenance.origin(), digest="d"))
    ray_cluster._judge(found_on_a_node(), "n1", place)
    with pytest.raises(ValueError, match=sentence):
        ray_cluster._judge(found_on_a_node(**changes), "n1", place)


def test_the_probe_sees_what_is_shared_and_which_code_is_there(tmp_path):
    probe = ray_cluster._probe_on_node()
    (tmp_path / "mark").write_text("token")
    found = probe(str(ROOT), [str(tmp_path / "mark")], "token")
    sys.path.remove(str(ROOT))
    assert found == found_on_a_node(digest=provenance.code_digest())
    (tmp_path / "mark").write_text("another folder's")
    assert not probe(str(ROOT), [str(tmp_path / "mark")], "token")["shared"]
    assert not probe(str(ROOT), [str(tmp_path / "missing")], "token")["shared"]


def test_a_wrong_address_and_a_missing_ray_are_one_sentence(tmp_path, monkeypatch):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(ValueError, match=f"nobody answers at {address}"):
            ray_cluster._check_address(address)
    with pytest.raises(ValueError, match="write ray:HOST:PORT"):
        ray_cluster._check_address("somewhere")
    monkeypatch.setitem(sys.modules, "ray", None)
    workers = make_workers(Arguments(on="ray"))
    with pytest.raises(ValueError, match="Ray, which is not installed"):
        workers.do([], make_place(tmp_path), lambda *_: None, Stop())


def test_needs_of_a_run(tmp_path):
    known = records.read_all(ROOT / "results" / "records").good
    most = max(r.peak_memory_mb for r in known if (r.recipe, r.row) == ("table1", "durnn-1"))
    assert memory_needed("table1", "durnn-1", known) == int(most * 2**20)
    assert memory_needed("table1", "never run", known) == 2**30
    assert make_workers(Arguments(on="ray", device="cuda", per_device=4)).gpus == 0.25
    node = {"Resources": {"CPU": 6.0, "GPU": 2.0}}
    assert [ray_cluster._fits(node, *needs) for needs in ((1, 0.0), (2, 0.0), (1, 1.0), (1, 0.25), (8, 0.0))] == [
        6, 3, 2, 6, 0,
    ]  # fmt: skip


@pytest.fixture
def cluster(monkeypatch):
    """A head that does no runs, and two nodes, all on the loopback."""
    for name, value in ENVIRONMENT.items():  # Ray reads some of it while it is imported
        monkeypatch.setenv(name, value)
    pytest.importorskip("ray", reason="Ray is not installed; it is the extra `cluster`")
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    cluster.nodes_to_lose = [cluster.add_node(num_cpus=1) for _ in range(2)]
    yield cluster
    cluster.shutdown()


def start(cluster, folder):
    command = [sys.executable, str(HERE / "ray_driver.py"), cluster.address, str(folder)]
    return subprocess.Popen(
        command, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def wait_for(condition, driver, seconds=900):
    """A bound on a hang, not a measurement."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "nothing happened"
        assert driver.poll() is None, driver.stdout.read()
        time.sleep(0.1)
    return found


def under_way(folder):
    """Run's folder -> lease, for runs that have left a checkpoint in this attempt and are being worked on."""
    seen = {path.parent: lease.look(path.parent) for path in (folder / "runs").glob("*/step-*.safetensors")}
    return {
        path: look.state
        for path, look in seen.items()
        if look.state and not look.state.ended and not lease.is_dead(path, look)
        if checkpoint.latest_step(path) > look.state.from_step
    }


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own, in the process that holds the cluster
def test_six_runs_outlive_a_worker_a_node_and_the_command(tmp_path, cluster):
    undisturbed, heard = make_place(tmp_path / "undisturbed"), []
    Inline().do(six_runs(tmp_path / "code"), undisturbed, lambda _, event: heard.append(event), Stop())
    expected = {r.seed: (r.weights_sha256, r.test) for r in records.read_all(undisturbed.records).good}
    assert len(expected) == 6

    folder = tmp_path / "disturbed"
    done = folder / "records"
    first = start(cluster, folder)
    lost, state = next(iter(wait_for(lambda: under_way(folder), first).items()))
    os.kill(state.process, signal.SIGKILL)
    wait_for(lambda: lease.look(lost).number > state.attempt, first)
    before = wait_for(lambda: len(live := under_way(folder)) == 2 and live, first)
    cluster.remove_node(cluster.nodes_to_lose[1], allow_graceful=False)
    wait_for(lambda: any(lease.look(path).number > state.attempt for path, state in before.items()), first)
    wait_for(lambda: under_way(folder), first)
    first.kill()
    first.communicate()
    assert len(list(done.glob("*.json"))) < 6, "the command was killed too late"

    second = start(cluster, folder)
    said, _ = second.communicate(timeout=1800)
    assert second.returncode == 0, said
    found = records.read_all(done)
    assert found.problems == []
    assert {r.seed: (r.weights_sha256, r.test) for r in found.good} == expected
    attempts = [[visit.attempt for visit in r.lineage] for r in found.good]
    assert sum(len(numbers) - 1 for numbers in attempts) >= 3, attempts  # a worker, a node, the command
    for numbers in attempts:
        assert numbers == sorted(set(numbers))
    for record in found.good:
        assert {visit.node for visit in record.lineage} == {os.uname().nodename}
        assert record.commit == provenance.origin().commit
        assert record.status == "completed"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_ctrl_c_saves_what_runs_on_the_cluster(tmp_path, cluster):
    driver = start(cluster, tmp_path)
    wait_for(lambda: len(under_way(tmp_path)) == 2, driver)
    driver.send_signal(signal.SIGINT)
    said, _ = driver.communicate(timeout=600)
    assert driver.returncode == 3, said
    assert "Traceback" not in said
    states = [lease.look(path).state for path in (tmp_path / "runs").iterdir()]
    assert [state.ended for state in states] == ["interrupted"] * 2
    assert {state.deaths for state in states} == {0}


@pytest.mark.slow
def test_a_table_on_a_cluster_of_this_machine(tmp_path):
    pytest.importorskip("ray", reason="Ray is not installed; it is the extra `cluster`")
    command = [
        sys.executable, "reproduce/figure2.py", "--budget", "smoke", "--rows", "rnn-tanh,irnn", "--cells", "adding-100",
        "--runs", f"{tmp_path}/runs", "--results", f"{tmp_path}/results", "--on", "ray", "--allow-uncommitted",
    ]  # fmt: skip
    said = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=1800)
    assert said.returncode == 0, said.stdout + said.stderr
    assert said.stdout.count("6 of 6 updates") == 2
    found = records.read_all(tmp_path / "results" / "records").good
    assert {r.command for r in found} == {" ".join(["python", *command[1:]])}
