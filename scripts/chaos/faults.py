"""The faults that trials inject into the services of a stack."""

from __future__ import annotations

import time
from signal import SIGCONT, SIGKILL, SIGSTOP
from typing import Final, Literal

import msgspec

from stack.process import send
from stack.supervisor import CABLED, Stack

Way = Literal["killed", "stopped", "frozen", "silent", "cut"]
#: Descriptions of the faults, for reports.
WAYS: Final[dict[Way, str]] = {
    "killed": "SIGKILL to all of its processes; started again as the compose file says",
    "stopped": "its own stop signal; started again",
    "frozen": "SIGSTOP for {hold_s:.0f} s: connections are accepted, nothing is answered",
    "silent": "for {hold_s:.0f} s the network drops everything silently",
    "cut": "for {hold_s:.0f} s connections are reset, and new ones refused",
}
#: Longer than the clients' timeout.
FAULT_S: Final = 12.0


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of failure of some services at the same time."""

    services: tuple[str, ...]
    way: Way

    @property
    def name(self) -> str:
        """The name for tables."""
        return " and ".join(self.services)

    def inject(self, stack: Stack) -> None:
        """Inject the fault, which lasts :data:`FAULT_S` unless it is instantaneous; returns when it is over."""
        match self.way:
            case "killed" | "stopped":
                for name in self.services:
                    pid = stack.members[name].pid
                    if pid is not None:
                        send(pid, SIGKILL) if self.way == "killed" else stack.members[name].request_stop()
            case "frozen":
                pids = [pid for name in self.services if (pid := stack.members[name].pid) is not None]
                for pid in pids:
                    send(pid, SIGSTOP)
                time.sleep(FAULT_S)
                for pid in pids:
                    send(pid, SIGCONT)
            case "silent" | "cut":
                for name in self.services:
                    stack.cables[name].switch("swallow" if self.way == "silent" else "cut")
                time.sleep(FAULT_S)
                for name in self.services:
                    stack.cables[name].switch("pass")


def faults() -> list[Fault]:
    """Return all faults in the order of the trials."""
    both = ("lamella-1", "lamella-2")
    parts: list[tuple[str, ...]] = [("catalog",), ("store",), ("lamella-1",), both, ("proxy",), ("worker",)]
    found = []
    for services in parts:
        ways: list[Way] = ["killed", "frozen"]
        if services in (("lamella-1",), ("catalog",)):
            ways.append("stopped")
        if all(name in CABLED for name in services):
            ways += ["silent", "cut"]
        found += [Fault(services=services, way=way) for way in ways]
    return found
