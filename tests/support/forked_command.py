"""The ``lamella`` command, started fast: forked from a process that has imported its modules already.

Importing them takes half a second of processor time, the service's several, and the documentation has hundreds of
commands. A small program of the same name, to be put first in PATH, hands its arguments, folder, environment and open
files to that process, and ends with the exit status of the command.
"""

from __future__ import annotations

import functools
import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

#: Sends itself to the process that forks, and waits for the exit status.
_PROGRAM: Final = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect({address!r})
    request = dict(arguments=sys.argv[1:], folder=os.getcwd(), environment=dict(os.environ))
    socket.send_fds(connection, [b"!"], [0, 1, 2])
    connection.sendall(json.dumps(request).encode())
    connection.shutdown(socket.SHUT_WR)
    status = connection.recv(16)
sys.exit(int(status or 1))
"""


class _Template:
    """The process that commands are forked from; the end of the session ends it."""

    def __init__(self, address: str) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LAMELLA_")}
        paths = os.pathsep.join(path for path in sys.path if path)
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, address],
            env={**environment, "PYTHONPATH": paths},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        with self._process.stdout as output:
            assert output.readline() == b"ready\n"


@functools.cache
def _started() -> tuple[_Template, Path]:
    folder = Path(tempfile.mkdtemp(prefix="command-"))
    address = str(folder / "socket")
    program = folder / "lamella"
    program.write_text(_PROGRAM.format(python=sys.executable, address=address), "utf-8")
    program.chmod(0o755)
    return _Template(address), folder


def folder_of_command() -> Path:
    """A folder with the program ``lamella``."""
    return _started()[1]


def _imports() -> None:
    import lamella.client
    import lamella.service.process.server

    for module in pkgutil.walk_packages(lamella.client.__path__, "lamella.client."):
        if ".spark" not in module.name and not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def _fork_for(listener: socket.socket) -> Mapping[str, Any]:
    """Fork for each request; the request, in each new process."""
    while True:
        connection, _ = listener.accept()
        if os.fork():
            connection.close()
            continue
        # A process for each request waits for its command, and answers.
        listener.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _, files, _, _ = socket.recv_fds(connection, 1, 3)
        with connection.makefile("rb") as text:
            request = json.loads(text.read())
        command = os.fork()
        if not command:
            connection.close()
            for descriptor, file in enumerate(files):
                os.dup2(file, descriptor)
                os.close(file)
            return dict(request)
        for file in files:
            os.close(file)
        _, status = os.waitpid(command, 0)
        connection.sendall(str(os.waitstatus_to_exitcode(status) & 255).encode())
        os._exit(0)


def _become(request: Mapping[str, Any]) -> None:
    """Take on what the command would have inherited."""
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    os.chdir(request["folder"])
    sys.argv = ["lamella", *request["arguments"]]


def main() -> None:
    """Fork for each request until the session ends; run the command in each new process."""
    _imports()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(sys.argv[1])
        listener.listen(16)
        os.write(1, b"ready\n")
        os.dup2(0, 1)
        _become(_fork_for(listener))
    from lamella.client.cli import main as command

    command()


if __name__ == "__main__":
    main()
