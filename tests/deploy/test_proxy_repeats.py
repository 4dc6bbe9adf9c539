"""What a real nginx with deploy/nginx sends a second time, before replicas that break or are away, and what not."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest

from support.ports import free_port
from support.proxied import proxied

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


def ask(url: str, method: str, path: str) -> int:
    """The status of an answer; what is not asked with GET or DELETE has a body that nginx puts into a file."""
    body = BODY if method in ("POST", "PUT", "PATCH") else None
    with httpx2.Client(trust_env=False, timeout=30) as http:
        return http.request(method, url + path, content=body).status_code


@pytest.mark.parametrize("by_table", [False, True])
@pytest.mark.parametrize(("method", "path", "times"), [(*each, 1) for each in CHANGES] + [(*q, 2) for q in QUESTIONS])
def test_only_questions_are_sent_again(tmp_path: Path, method: str, path: str, times: int, by_table: bool) -> None:
    """A replica that breaks may have done what it was asked: the answer to a change is 502, and nothing is repeated."""
    with ExitStack() as stack:
        replicas = [Replica(answers=False) for _ in range(2)]
        for replica in replicas:
            stack.callback(replica.close)
        url = stack.enter_context(proxied(tmp_path, *(each.port for each in replicas), by_table=by_table))
        assert ask(url, method, path) == 502
        taken = [each for replica in replicas for each in replica.taken]
        assert taken == [(method, len(BODY) if method in ("POST", "PUT", "PATCH") else 0)] * times


@pytest.mark.parametrize("by_table", [False, True])
@pytest.mark.parametrize(("method", "path"), CHANGES + QUESTIONS)
def test_what_could_not_be_sent_goes_to_the_other_replica(
    tmp_path: Path, method: str, path: str, by_table: bool
) -> None:
    """A replica that is away has done nothing: whichever is asked first, the other one answers, and gets all of it."""
    for away_first in (True, False):
        with ExitStack() as stack:
            replica = Replica(answers=True)
            stack.callback(replica.close)
            ports = [free_port(), replica.port] if away_first else [replica.port, free_port()]
            url = stack.enter_context(proxied(tmp_path / str(away_first), *ports, by_table=by_table))
            assert [ask(url, method, path) for _ in range(3)] == [200] * 3
        assert replica.taken == [(method, len(BODY) if method in ("POST", "PUT", "PATCH") else 0)] * 3
