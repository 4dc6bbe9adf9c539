"""Answers are decoded by many threads, each of which may be the first to see an answer of its type."""

from __future__ import annotations

import subprocess
import sys

#: msgspec finds out what it has to know of a struct when it is first decoded. Where two threads did that at once the
#: process ended by a signal, mostly within the first few hundred types.
PROGRAM = """
import gc, sys, threading
import msgspec
from lamella.client.http.exchange import _decode

sys.setswitchinterval(1e-6)
gc.set_threshold(20)
BODY = b'{"h0":{"g0":[{"f0":1,"f11":2}],"g7":[{"f3":1}]},"h7":{"g7":[{"f11":3}]}}'

def fresh():
    inner = msgspec.defstruct("Inner", [(f"f{i}", int | None, None) for i in range(12)])
    middle = msgspec.defstruct("Middle", [(f"g{i}", tuple[inner, ...], ()) for i in range(8)])
    return msgspec.defstruct("Outer", [(f"h{i}", middle | None, None) for i in range(8)])

def ask(kind, barrier):
    barrier.wait()
    found = _decode(kind, BODY)
    assert (found.h0.g7[0].f3, found.h7.g7[0].f11) == (1, 3)

for _ in range(400):
    kind, barrier = fresh(), threading.Barrier(4)
    threads = [threading.Thread(target=ask, args=(kind, barrier)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def test_many_threads_may_see_a_type_for_the_first_time_at_once() -> None:
    """Four threads each time, four hundred types, and no thread or process that ends by it."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
