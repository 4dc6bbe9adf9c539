"""The image's promise without an engine: a root that cannot be written to, user 10001, no capability, only /tmp.

`unshare` and `setpriv` (util-linux) make what a container engine makes of `read_only`, `tmpfs`, `cap_drop` and
`no-new-privileges`. (Nothing in a tmpfs can be started, but where a service says `exec`, as Spark's do.) They need
the right to mount: root, or user namespaces that everybody may have.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import leftovers
from stack.process import family
from stack.tools import ROOT
from support.ports import free_port

USER = "10001"
TMP = "/tmp"  # noqa: S108  # the container's
#: What the image has, as far as it is on this machine: Python and its packages, Lamella, the system's libraries.
MOUNTS = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/dev", "/proc"),
    *(sys.base_prefix, sys.prefix, *(str(ROOT / part) for part in ("snapshot", "service", "client"))),
)
#: $1: a folder that is there as /tmp/data, if any; then the places, an end, and the command.
SEAL = """
set -e
data=$1; shift
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs /mnt
mkdir /mnt/tmp
mount -t tmpfs -o mode=1777,noexec,nosuid,nodev tmpfs /mnt/tmp
while [ "$1" != -- ]; do
    if [ -d "$1" ]; then
        mkdir -p "/mnt$1"
        mount --rbind "$1" "/mnt$1"
        case $1 in /dev|/proc) ;; *) mount -o remount,bind,ro "/mnt$1" ;; esac
    fi
    shift
done
shift
if [ -n "$data" ]; then
    mkdir /mnt/tmp/data
    mount --bind "$data" /mnt/tmp/data
fi
mount -o remount,ro /mnt
exec chroot /mnt setpriv --reuid USER --regid USER --clear-groups --no-new-privs \\
    --bounding-set -all --inh-caps -all --ambient-caps -all "$@"
"""


def sandboxed(words: list[str], *, data: Path | None = None) -> list[str]:
    """A command that runs another one as a container would; ``data`` is there as /tmp/data."""
    given = ["" if data is None else str(data), *dict.fromkeys(MOUNTS), "--", *words]
    return ["unshare", "--mount", "sh", "-c", SEAL.replace("USER", USER), "seal", *given]


def environment() -> dict[str, str]:
    """What the image gives, and not more, but for what the test session is known by."""
    path = f"{sysconfig.get_path('scripts')}:{os.defpath}:/usr/sbin:/sbin"
    return {"PATH": path, "HOME": TMP, "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1", **leftovers.mark()}


def run(words: list[str]) -> subprocess.CompletedProcess[str]:
    """What a sealed command says."""
    return subprocess.run(sandboxed(words), check=False, capture_output=True, text=True, env=environment())


@contextmanager
def running(words: list[str], log: Path, data: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A sealed program, ended at the end."""
    command = sandboxed(words, data=data)
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment(), stdout=output, stderr=output, stdin=subprocess.DEVNULL)
    try:
        yield process
    finally:
        for pid in list(family(process.pid)):
            os.kill(pid, signal.SIGKILL)
        process.wait()


def test_the_seal_holds() -> None:
    """Nothing can be written but /tmp, nothing there can be started, and no capability is left.

    The tests below would show nothing otherwise.
    """
    program = f"""
import os, pathlib
pathlib.Path("/tmp/x").write_text("x")
pathlib.Path("/tmp/x").chmod(0o755)
print(os.access("/tmp/x", os.X_OK))
names = ("CapEff", "CapBnd", "NoNewPrivs", "Uid")
print(*(line for line in pathlib.Path("/proc/self/status").read_text().splitlines() if line.startswith(names)))
print([place for place in ["/", "/var", {str(ROOT / "service")!r}, *{MOUNTS!r}] if os.access(place, os.W_OK)])
"""
    done = run([sys.executable, "-c", program])
    assert done.returncode == 0, done.stderr
    may_start, status, writable = done.stdout.splitlines()
    assert may_start == "False"
    assert status.split() == [
        *("Uid:", USER, USER, USER, USER),
        *("CapEff:", "0" * 16, "CapBnd:", "0" * 16, "NoNewPrivs:", "1"),
    ]
    assert writable == "[]"


@pytest.mark.parametrize("workers", [1, 2])
def test_the_service_runs_in_a_sandbox(tmp_path: Path, workers: int) -> None:
    """With one process and with several it needs no place to write to but /tmp and its data, and no right."""
    data = tmp_path / "data"
    data.mkdir(mode=0o777)
    data.chmod(0o777)
    port = free_port()
    words = ["lamella", "serve", "--warehouse", f"{TMP}/data/warehouse", "--port", str(port), "--workers", str(workers)]
    with running(words, tmp_path / "log", data) as process:
        give_up = time.monotonic() + 300
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health/ready", timeout=10).close()
                break
            except (urllib.error.URLError, OSError):
                output = (tmp_path / "log").read_text("utf-8")
                assert process.poll() is None, output
                assert time.monotonic() < give_up, output
                time.sleep(0.05)
        request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/namespaces", b'{"name": "n"}')
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310  # the service above
            assert answer.status == 201
    assert {path.stat().st_uid for path in (data / "warehouse").iterdir()} == {int(USER)}


def test_the_command_line_runs_in_a_sandbox() -> None:
    """`lamella` needs no home and no place for byte code."""
    done = run(["lamella", "job", "kinds", "--help"])
    assert done.returncode == 0, done.stderr
