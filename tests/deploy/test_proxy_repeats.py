"""What a real nginx with deploy/nginx sends a second time, before replicas that break or are away, and what not."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import pytest

from stack.mapping import HostMapping
from stack.process import Member
from stack.recipes import Recipe
from stack.supervisor import Stack
from stack.tools import ROOT, debian
from support.ports import free_port

TABLE = "/v1/namespaces/n/tables/t"
#: Whatever changes something, as routes of the service have it.
CHANGES = [
    ("POST", f"{TABLE}/commits"),
    ("PUT", "/v1/quotas/n"),
    ("PATCH", f"{TABLE}"),
    ("DELETE", f"{TABLE}"),
]
QUESTIONS = [("GET", TABLE), ("POST", f"{TABLE}/prune")]
BODY = b'{"a": "' + b"x" * 200_000 + b'"}'


class Replica:
    """Takes requests whole, one on a connection; ``answers``: or hangs up instead. ``taken``: method and length."""

    def __init__(self, *, answers: bool) -> None:
        self.taken: list[tuple[str, int]] = []
        self._answers = answers
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as text:
                head = [line := text.readline()]
                while line.strip():
                    head.append(line := text.readline())
                lengths = [line.split(b":")[1] for line in head if line.lower().startswith(b"content-length:")]
                body = text.read(int(lengths[0]) if lengths else 0)
                self.taken.append((head[0].split()[0].decode(), len(body)))
                if self._answers:
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")

    def close(self) -> None:
        """Listen no more."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


@contextmanager
def proxied(folder: Path, *ports: int) -> Iterator[str]:
    """The address of an nginx with our files before replicas at these ports."""
    plan = Stack(folder)
    service = plan.compose.services["proxy"]
    mapping = HostMapping(plan.compose, service, plan.addresses, folder, ROOT)
    mapping.make()
    conf = mapping.mounts["/etc/lamella"]
    port = free_port()
    own = plan.addresses.own["proxy"]
    server = (conf / "server.conf").read_text("utf-8")
    (conf / "server.conf").write_text(server.replace(f"{own}:8080", f"127.0.0.1:{port}"), "utf-8")
    main = (conf / "nginx.conf").read_text("utf-8")
    for name, theirs in zip(("lamella-1", "lamella-2"), ports, strict=True):
        main = main.replace(f"{plan.addresses.own[name]}:8181", f"127.0.0.1:{theirs}")
    user = "user root;\n" if os.geteuid() == 0 else ""
    (conf / "nginx.conf").write_text(user + main, "utf-8")
    command = [debian("nginx", "nginx-light"), "-c", str(conf / "nginx.conf"), "-g", "daemon off;"]
    member = Member(service, Recipe(command=command, environment={}, health=None), folder / "nginx.log")
    member.start()
    try:
        give_up = time.monotonic() + 300
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 5).close()
                break
            except OSError:
                assert time.monotonic() < give_up, member.tail()
                time.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
    finally:
        member.end()


def ask(url: str, method: str, path: str) -> int:
    """The status of an answer; what is not asked with GET or DELETE has a body that nginx puts into a file."""
    body = BODY if method in ("POST", "PUT", "PATCH") else None
    with httpx2.Client(trust_env=False, timeout=30) as http:
        return http.request(method, url + path, content=body).status_code


@pytest.mark.parametrize(("method", "path", "times"), [(*each, 1) for each in CHANGES] + [(*q, 2) for q in QUESTIONS])
def test_only_questions_are_sent_again(tmp_path: Path, method: str, path: str, times: int) -> None:
    """A replica that breaks may have done what it was asked: the answer to a change is 502, and nothing is repeated."""
    with ExitStack() as stack:
        replicas = [Replica(answers=False) for _ in range(2)]
        for replica in replicas:
            stack.callback(replica.close)
        url = stack.enter_context(proxied(tmp_path, *(replica.port for replica in replicas)))
        assert ask(url, method, path) == 502
        taken = [each for replica in replicas for each in replica.taken]
        assert taken == [(method, len(BODY) if method in ("POST", "PUT", "PATCH") else 0)] * times


@pytest.mark.parametrize(("method", "path"), CHANGES + QUESTIONS)
def test_what_could_not_be_sent_goes_to_the_other_replica(tmp_path: Path, method: str, path: str) -> None:
    """A replica that is away has done nothing: whichever is asked first, the other one answers, and gets all of it."""
    for away_first in (True, False):
        with ExitStack() as stack:
            replica = Replica(answers=True)
            stack.callback(replica.close)
            ports = [free_port(), replica.port] if away_first else [replica.port, free_port()]
            url = stack.enter_context(proxied(tmp_path / str(away_first), *ports))
            assert [ask(url, method, path) for _ in range(3)] == [200] * 3
        assert replica.taken == [(method, len(BODY) if method in ("POST", "PUT", "PATCH") else 0)] * 3
