"""Loopback ports for servers that tests start, also again after they were killed."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 10_000
_TRIES = 1_000
_random = random.SystemRandom()
_given: set[int] = set()


def free_port() -> int:
    """A port that nothing listens on now, and that the system gives to no outgoing connection later.

    A port of the range for outgoing connections can be taken by one while a killed server is down, or before a new
    one listens: "address already in use", once in some hundred runs. So it is one below that range, drawn at random,
    since several test processes draw at once.
    """
    for _ in range(_TRIES):
        port = _random.randrange(_LOWEST, _first_outgoing())
        if port in _given:
            continue
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        _given.add(port)
        return port
    raise OSError(f"no free port found in {_TRIES} tries")


def _first_outgoing() -> int:
    """The first port of the range for outgoing connections; Linux's usual one where it is not said."""
    if not _RANGE.exists():
        return 32_768
    first = int(_RANGE.read_text().split()[0])
    return first if first > _LOWEST + _TRIES else 32_768
