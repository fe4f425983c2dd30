"""A one-node Slurm cluster for the tests, with its own daemons, ports, key and directories."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "squeue", "scancel")
NODE = "node1"
PATIENCE = 60.0  # seconds

SETTINGS = """
ClusterName=torchcaps-tests
SlurmctldHost=localhost
SlurmctldPort={controller_port}
SlurmdPort={node_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=10
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmUser=root
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ReturnToService=2
JobRequeue=1
KillWait=20
MessageTimeout=30
SlurmdTimeout=300
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={node_port} CPUs=4 RealMemory=2000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
"""


@dataclass
class Cluster:
    """The running daemons by name, and the folder that holds all of it."""

    folder: Path
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def settings(self) -> Path:
        return self.folder / "slurm.conf"

    def start(self, name: str, *arguments: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as out:
            self.daemons[name] = subprocess.Popen([name, *arguments], stdout=out, stderr=out)

    def start_node(self) -> None:
        self.start("slurmd", "-D", "-f", str(self.settings), "-N", NODE)

    def kill_node(self) -> None:
        """SIGKILL the daemon of the node; running jobs continue without it."""
        self.daemons["slurmd"].kill()
        self.daemons["slurmd"].wait()

    def wait_until_idle(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while "idle" not in ask("sinfo", "--noheader", "--format", "%T"):
            if time.monotonic() > deadline:
                logs = "\n".join(path.read_text(errors="replace")[-2000:] for path in self.folder.glob("*.log"))
                raise RuntimeError(f"Slurm did not come up:\n{logs}")
            time.sleep(0.5)

    def stop(self) -> None:
        """Stop the processes that were started here, by process id."""
        for name in ("slurmd", "slurmctld", "munged"):
            if name in self.daemons and self.daemons[name].poll() is None:
                self.daemons[name].terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.daemons[name].wait(20)
                self.daemons[name].kill()


RUNNING: list[Cluster] = []  # the one that the tests of this process use


def ask(*command: str) -> str:
    """Output of a Slurm command."""
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout.strip()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def what_is_missing() -> str:
    """The reason why no cluster can be started here; empty if one can."""
    lacking = [name for name in NEEDED if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is None]
    if lacking:
        return f"{', '.join(lacking)} not found: run scripts/install_slurm.sh (Debian's slurm-wlm and munge)"
    return "" if os.geteuid() == 0 else "Slurm's daemons need the rights of root"


@contextlib.contextmanager
def one_node(folder: Path) -> Iterator[Cluster]:
    """Run a cluster inside the block; SLURM_CONF points every command to it."""
    os.environ["PATH"] += ":/usr/sbin"
    cluster = Cluster(folder)
    for name in ("state", "spool"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    values = {"folder": folder, "controller_port": free_port(), "node_port": free_port(), "node": NODE}
    cluster.settings.write_text(SETTINGS.format(**values, host=socket.gethostname()))
    os.environ["SLURM_CONF"] = str(cluster.settings)
    try:
        places = [f"--{what}-file={folder}/munge.{what}" for what in ("key", "pid", "log", "seed")]
        cluster.start("munged", "--foreground", "--force", f"--socket={folder}/munge.socket", *places)
        time.sleep(1)
        cluster.start("slurmctld", "-D", "-f", str(cluster.settings))
        cluster.start_node()
        cluster.wait_until_idle()
        RUNNING.append(cluster)
        yield cluster
    finally:
        RUNNING.clear()
        cluster.stop()
        del os.environ["SLURM_CONF"]
