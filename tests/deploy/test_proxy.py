"""Two replicas behind a real nginx with deploy/nginx: who gets what, who is believed, and what a loss costs."""

from __future__ import annotations

import ssl
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import Signals
from typing import NamedTuple

import httpx2
import pytest

from lamella.client.http import Lamella, RetryPolicy
from stack.mapping import HostMapping
from stack.process import Member
from stack.recipes import Recipe
from stack.tools import ROOT, debian
from support.ports import free_port
from support.stacked import Lake, RunningStack

pytestmark = [pytest.mark.soak, pytest.mark.postgres]

CALLER = "127.0.0.9"
PATIENT = RetryPolicy(attempts=12)


def replicas_of(stack: RunningStack, answers: int) -> Counter[str]:
    """Which replicas gave so many of the last answers, as nginx logged it."""
    log = stack.log("proxy").splitlines()
    lines = [line for line in log if '"path":"/v1/config"' in line]
    return Counter(line.split('"replica":"')[1].split('"')[0] for line in lines[-answers:])


def caller_seen(lake: Lake, http: httpx2.Client, **headers: str) -> str:
    """From which address a request came, as the service has it in its audit trail."""
    name = lake.table({"a": "int64"}).partition(".")[0]
    answer = http.post("/v1/namespaces", json={"name": f"{name}x"}, headers=headers)
    assert answer.status_code == 201, answer.text
    request_id = answer.headers["x-request-id"]
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        for entry in http.get("/v1/audit").json()["entries"]:
            if entry["request_id"] == request_id:
                return str(entry["client"])
        time.sleep(0.05)
    pytest.fail("the audit trail does not have the request")


def test_requests_go_to_both_replicas_in_turn(stack: RunningStack, lake: Lake) -> None:
    """Of forty requests each replica gets about half; the worker's own requests are between them."""
    with lake.http() as http:
        for _ in range(40):
            assert http.get("/v1/config").status_code == 200
    found = replicas_of(stack, 40)
    assert sum(found.values()) == 40
    assert min(found.values()) >= 15


def test_a_clients_request_id_comes_back_and_one_is_made_where_there_is_none(stack: RunningStack, lake: Lake) -> None:
    """The answer, nginx's log and the replica's log have the same id; what is no id is replaced."""
    with lake.http() as http:
        answer = http.get("/v1/namespaces", headers={"X-Request-Id": "mine-1"})
        assert answer.headers.get_list("x-request-id") == ["mine-1"]
        made = http.get("/v1/namespaces", headers={"X-Request-Id": "not sensible {}"}).headers["x-request-id"]
        assert made != http.get("/v1/namespaces").headers["x-request-id"]
        assert len(made) == 32
    logs = [stack.log(name) for name in ("proxy", "lamella-1", "lamella-2")]
    for request_id in ("mine-1", made):
        assert f'"request_id":"{request_id}"' in logs[0]
        assert any(f'"request_id":"{request_id}"' in log for log in logs[1:])


def test_only_nginx_is_believed_about_where_a_request_comes_from(stack: RunningStack, lake: Lake) -> None:
    """The address is the peer's of nginx; what a client says of itself counts neither there nor at a replica."""
    forged = {"X-Forwarded-For": "203.0.113.7", "X-Forwarded-Proto": "https", "Forwarded": "for=203.0.113.7"}
    with lake.http(source=CALLER) as http:
        assert caller_seen(lake, http, **forged) == CALLER
    with lake.http(stack.replica_url(1), source=CALLER) as http:
        assert caller_seen(lake, http, **forged) == CALLER
    with lake.http(stack.replica_url(1), source=stack.plan.addresses.by_name["proxy"]) as http:
        assert caller_seen(lake, http, **forged) == "203.0.113.7"


def test_metrics_are_not_passed_on(stack: RunningStack, lake: Lake) -> None:
    """What Prometheus reads from each replica, nobody reads through nginx."""
    with lake.http() as http:
        assert http.get("/metrics").status_code == 404
    with lake.http(stack.replica_url(2), Authorization="") as http:
        assert "lamella_requests_total" in http.get("/metrics").text


def test_large_bodies_pass_and_the_service_says_what_is_too_large(lake: Lake) -> None:
    """60 MiB arrive whole, and are refused for what is in them; above its limit the service's answer comes through."""
    name = lake.table({"a": "int64"})
    namespace, _, table = name.partition(".")
    path = f"/v1/namespaces/{namespace}/tables/{table}/commits"
    with lake.http() as http:
        for mebibytes, status, code in ((60, 400, "invalid_request"), (64.5, 413, "body_too_large")):
            body = b'{"unknown": "' + b"x" * int(mebibytes * (1 << 20)) + b'"}'
            answer = http.post(path, content=body, headers={"Content-Type": "application/json"})
            assert (answer.status_code, answer.json()["code"]) == (status, code)
        answer = http.post(path, content=b" " * (66 << 20), headers={"Content-Type": "application/json"})
        assert answer.status_code == 413


def test_large_answers_pass_whole(stack: RunningStack, lake: Lake) -> None:
    """A manifest of megabytes is the same through nginx as from the replica, also for a client that reads slowly."""
    columns = {f"c{number:02}": [f"{'x' * 400}{number}", "y" * 400] for number in range(60)}
    name = lake.table(dict.fromkeys(columns, "string"))
    table = lake.client.table(name)
    table.register([lake.put(columns) for _ in range(80)])
    namespace, _, short = name.partition(".")
    (segment,) = [ref.segment_id for ref in table.snapshot(table.info().snapshot_id).segments]
    path = f"/v1/namespaces/{namespace}/tables/{short}/segments/{segment}"
    with lake.http(stack.replica_url(1)) as http:
        expected = http.get(path).content
    assert len(expected) > 1 << 20
    with lake.http(**{"Accept-Encoding": "identity"}) as http:
        assert http.get(path).content == expected
        with http.stream("GET", path) as answer:
            pieces = []
            for piece in answer.iter_bytes(256 << 10):
                pieces.append(piece)
                time.sleep(0.05)
        assert b"".join(pieces) == expected


class Asking(threading.Thread):
    """Asks one thing again and again, until it is told to stop; ``failed``: what was raised."""

    def __init__(self, ask: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self.answers = 0
        self.failed: list[Exception] = []
        self._ask = ask
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.is_set():
            try:
                self._ask()
                self.answers += 1
            except Exception as error:
                self.failed.append(error)

    def wait_for(self, more: int) -> None:
        """Return after so many more answers, or failures."""
        wanted = self.answers + len(self.failed) + more
        while self.answers + len(self.failed) < wanted:
            time.sleep(0.005)

    def end(self) -> None:
        """Stop asking."""
        self._ended.set()
        self.join()


@contextmanager
def asking(*asks: Callable[[], object]) -> Iterator[list[Asking]]:
    """Threads that ask as long as the block runs."""
    threads = [Asking(ask) for ask in asks]
    for thread in threads:
        thread.start()
    try:
        yield threads
    finally:
        for thread in threads:
            thread.end()


def test_a_killed_replica_costs_no_client_a_request(stack: RunningStack, lake: Lake) -> None:
    """Commits and prunes of clients that try again all succeed; the engine starts it again, and it gets its half."""
    table = lake.client.table(lake.table({"a": "int64"}))
    locations = [lake.put({"a": [number]}) for number in range(60)]
    left = iter(locations)
    taken: list[str] = []
    with Lamella(stack.url, token=stack.key, policy=PATIENT) as writer:

        def commit() -> None:
            location = next(left, None)
            if location is None:
                time.sleep(0.05)
                return
            writer.table(str(table)).register([location])
            taken.append(location)

        def prune() -> None:
            table.prune("a >= 0")

        with asking(commit, prune, prune) as threads:
            for thread in threads:
                thread.wait_for(5)
            stack.signal("lamella-1", Signals.SIGKILL)
            for thread in threads:
                thread.wait_for(10)
            stack.wait_replica(1, 2)
            for thread in threads:
                thread.wait_for(5)
        assert [thread.failed for thread in threads] == [[], [], []]
    assert sorted(table.prune("a >= 0").locations) == sorted(taken)
    time.sleep(2.1)  # for so long nginx leaves out one that refused it (fail_timeout)
    with lake.http() as http:
        for _ in range(20):
            assert http.get("/v1/config").status_code == 200
    assert len(replicas_of(stack, 20)) == 2


def test_a_replica_that_is_stopped_in_an_orderly_way_costs_nobody_anything(stack: RunningStack, lake: Lake) -> None:
    """Not one request fails, without any tries of the client's own; when it has drained, nginx asks the other one."""
    table = lake.client.table(lake.table({"a": "int64"}))
    table.register([lake.put({"a": [1]})])
    once = RetryPolicy(attempts=1)
    with Lamella(stack.url, token=stack.key, policy=once) as client:

        def prune() -> None:
            client.table(str(table)).prune("a = 1")

        with asking(prune, prune) as threads:
            for thread in threads:
                thread.wait_for(5)
            stack.signal("lamella-2", Signals.SIGTERM)
            stack.wait_replica(2, 2)
            for thread in threads:
                thread.wait_for(10)
        assert [thread.failed for thread in threads] == [[], []]
    assert '"event":"draining"' in stack.log("lamella-2")


class TlsUrls(NamedTuple):
    """Of an nginx with HTTPS: that itself, the plain port that is published, and the one that is not."""

    secure: str
    published: str
    inner: str


@pytest.fixture
def tls_urls(stack: RunningStack, tmp_path: Path) -> Iterator[TlsUrls]:
    """A second nginx before the same replicas, with deploy/nginx/server-tls.conf in place of server.conf."""
    folder = tmp_path / "tls"
    folder.mkdir()
    certificate, key = folder / "tls_certificate", folder / "tls_key"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run([*made, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    ports = {8443: free_port(), 8081: free_port(), 8080: free_port()}
    mapping = HostMapping(stack.plan.compose, stack.plan.compose.services["proxy"], stack.plan.addresses, folder, ROOT)
    mapping.add("/run/secrets/tls_certificate", certificate)
    mapping.add("/run/secrets/tls_key", key)
    mapping.make()
    (conf,) = [source for target, source in mapping.mounts.items() if target == "/etc/lamella"]
    own = stack.plan.addresses.own["proxy"]
    server = (conf / "server-tls.conf").read_text("utf-8")
    for theirs, ours in ports.items():
        server = server.replace(f"{own}:{theirs}", f"127.0.0.1:{ours}")
    (conf / "server.conf").write_text(server, "utf-8")
    main = (conf / "nginx.conf").read_text("utf-8").replace("http {", f"http {{ proxy_bind {own};", 1)
    (conf / "nginx.conf").write_text(f"user root;\n{main}", "utf-8")
    command = [debian("nginx", "nginx-light"), "-c", str(conf / "nginx.conf"), "-g", "daemon off;"]
    member = Member(
        stack.plan.compose.services["proxy"],
        Recipe(command=command, environment={}, health=None),
        tmp_path / "nginx.log",
    )
    member.start()
    try:
        member.wait_well(30)
        yield TlsUrls(
            secure=f"https://127.0.0.1:{ports[8443]}",
            published=f"http://127.0.0.1:{ports[8081]}",
            inner=f"http://127.0.0.1:{ports[8080]}",
        )
    finally:
        member.end()


def test_the_sample_for_https_serves_it_and_sends_others_there(
    tls_urls: TlsUrls, stack: RunningStack, tmp_path: Path
) -> None:
    """By HTTPS the service answers, and knows the scheme; by HTTP there is nothing but the way to HTTPS.

    The worker and the health check of docker-compose.yml ask at the port that they ask at without HTTPS.
    """
    secure, plain, inner = tls_urls
    trust = ssl.create_default_context(cafile=str(tmp_path / "tls" / "tls_certificate"))
    headers = {"Authorization": f"Bearer {stack.key}"}
    with httpx2.Client(verify=trust, headers=headers, timeout=60) as http:
        deadline = time.monotonic() + 300
        while True:
            try:
                answer = http.get(f"{secure}/v1/config")
                break
            except httpx2.TransportError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        assert answer.status_code == 200
        assert answer.headers["strict-transport-security"] == "max-age=31536000"
        moved = http.get(f"{plain}/v1/config?x=1")
        assert (moved.status_code, moved.headers["location"]) == (308, "https://127.0.0.1/v1/config?x=1")
        for name, path in (("proxy", "/health/live"), ("worker", "/v1/config")):
            service = stack.plan.compose.services[name]
            words = [*service.environment.values(), *(service.health.command if service.health else ())]
            assert any(":8080" in word for word in words)
            assert http.get(f"{inner}{path}").status_code == 200
        login = http.post(f"{secure}/ui/login", data={"key": stack.key})
        assert login.status_code < 500
