"""Run what docker-compose.yml describes as processes of this machine, on loopback addresses (`make stack`).

The commands, environments, health checks and their order are read from that file; docs/deploy.md says what is put in
for host names, paths and images. Ends with Ctrl-C, or with `--down` from elsewhere. `--exec worker
lamella job list` is what `docker compose exec worker lamella job list` would be.
"""

import argparse
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from stack.process import DidNotStart
from stack.supervisor import STATE, Stack
from stack.tools import ROOT, MissingTool, say

_STATE_EVERY_S = 1.0
_DOWN_S = 120.0


def main() -> int:
    """Run until told to stop; returns the exit status."""
    given = _arguments()
    folder = given.folder.resolve()
    if given.down:
        return down(folder)
    if given.exec:
        return inside(folder, given.exec)
    if (folder / STATE).exists() and _pid_of(folder) is not None:
        say(f"a stack runs already in {folder}; `make stack ARGS=--down` ends it")
        return 1
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    try:
        with Stack(folder, profiles=given.profile, with_moto=given.moto, keep=not given.rm) as stack:
            if given.json:
                print(json.dumps(stack.state()), flush=True)
            else:
                _print_addresses(stack)
            while not stopped.wait(_STATE_EVERY_S):
                stack.write_state()
            say("stopping")
    except (DidNotStart, MissingTool, ValueError) as error:
        say(f"error: {error}")
        return 1
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", action="append", default=[], choices=["spark", "monitoring"], help="also these")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "stack", help="data, secrets, logs")
    parser.add_argument("--moto", action="store_true", help="moto as the S3 server: in memory, nothing to build")
    parser.add_argument("--rm", action="store_true", help="delete data and secrets at the end")
    parser.add_argument("--json", action="store_true", help="print what runs where as JSON, once it is well")
    parser.add_argument("--exec", nargs=argparse.REMAINDER, metavar="SERVICE WORD ...", help="a command in its place")
    parser.add_argument("--down", action="store_true", help="end the stack that runs in the folder")
    return parser.parse_args()


def down(folder: Path) -> int:
    """Stop the stack of a folder and wait for it; returns the exit status."""
    pid = _pid_of(folder)
    if pid is None:
        say(f"no stack runs in {folder}")
        return 1
    os.kill(pid, signal.SIGTERM)
    give_up = time.monotonic() + _DOWN_S
    while (folder / STATE).exists() and time.monotonic() < give_up:
        time.sleep(0.1)
    return 0 if not (folder / STATE).exists() else 1


def inside(folder: Path, words: list[str]) -> int:
    """Run a command in the environment of a service of a running stack; does not return on success."""
    if _pid_of(folder) is None:
        say(f"no stack runs in {folder}")
        return 1
    command, environment = Stack(folder).inside(words[0], words[1:])
    os.execvpe(command[0], command, environment)  # noqa: S606  # the command of whoever asks


def _pid_of(folder: Path) -> int | None:
    """Return the supervising process of a folder's stack, if it is running."""
    try:
        pid = int(json.loads((folder / STATE).read_text("utf-8"))["pid"])
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError, KeyError):
        return None
    return pid if any(Path(os.fsdecode(word)).name == Path(__file__).name for word in words) else None


def _print_addresses(stack: Stack) -> None:
    print(f"The service:   {stack.url}/ui  (nginx before {stack.replica_url(1)} and {stack.replica_url(2)})")
    print(f"Its key:       {stack.folder}/secrets/root_key")
    print(f"For programs:  export LAMELLA_URL={stack.url} LAMELLA_TOKEN_FILE={stack.folder}/secrets/root_key")
    for name, member in stack.members.items():
        if member.pid is not None:
            print(f"  {name:13} {stack.addresses.by_name[name]:15} pid {member.pid}")
    print(f"Logs:          {stack.folder}/log")
    print("Ctrl-C ends it all.", flush=True)


if __name__ == "__main__":
    sys.exit(main())
