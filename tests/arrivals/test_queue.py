"""A bucket of an S3 server that tells a queue of its objects, and the command that empties it."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from arrivals.conftest import Bucket, environment

pytestmark = pytest.mark.s3

_WAIT_S = 120


def wait_until(is_true: object, what: str) -> None:
    """Return once a function returns something true."""
    assert callable(is_true)
    give_up_s = time.monotonic() + _WAIT_S
    while not is_true():
        assert time.monotonic() < give_up_s, what
        time.sleep(0.05)


def test_once_empties_the_queue(bucket: Bucket) -> None:
    """New objects become blocks; everything else is counted. What comes again changes nothing."""
    files = [bucket.put("x/a b+c%é[1].parquet", 1, 2), bucket.put("b.parquet", 3)]
    bucket.put("notes.txt", data=b"x")
    bucket.s3.delete_object(Bucket=bucket.name, Key="gone.parquet")
    bucket.send({"Service": "Amazon S3", "Event": "s3:TestEvent"})
    done = bucket.run("--once", "--json")
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert sum(each["registered"] for each in answers) == 2
    assert sum(each["row_count"] or 0 for each in answers) == 3
    ignored = sum((Counter(each["ignored"]) for each in answers), Counter[str]())
    assert ignored["test"] >= 1
    assert ignored["other_file"] == 1
    assert bucket.waiting() == 0
    assert sorted(block.location for block in bucket.table.prune().blocks) == sorted(files)
    records = [
        {"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": bucket.name}, "object": {"key": "b.parquet"}}}
    ]
    bucket.send({"Records": records})
    done = bucket.run("--once")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1 in the table already\n"
    assert bucket.waiting() == 0


def test_messages_that_are_refused_stay_for_the_dead_letter_queue(bucket: Bucket) -> None:
    """Others in the same batch are registered and deleted. A message that cannot be read is one of them."""
    bucket.put("bad.parquet", data=b"not Parquet")
    bucket.send("hello")
    bucket.put("good.parquet", 1)
    done = bucket.run("--once")
    assert done.returncode == 1
    assert "1 file with 1 row" in done.stdout
    assert "bad.parquet" in done.stderr
    assert "[invalid_request]" in done.stderr
    assert "dead-letter" not in done.stderr
    assert bucket.waiting() == 2
    assert bucket.values() == {1: 1}


def test_refused_messages_can_be_moved_to_a_file(bucket: Bucket, tmp_path: Path) -> None:
    """After as many receives as the option says; nothing of a message is lost."""
    attributes = {"RedrivePolicy": ""}
    bucket.sqs.set_queue_attributes(QueueUrl=bucket.queue, Attributes=attributes)
    bucket.put("bad.parquet", data=b"not Parquet")
    bucket.send("hello")
    assert "no dead-letter queue" in bucket.run("--once").stderr
    refused = tmp_path / "refused.jsonl"
    for _ in range(6):
        time.sleep(1.1)  # messages become visible again
        done = bucket.run("--once", "--refused", str(refused), "--tries", "2")
        assert "no dead-letter queue" not in done.stderr
        if bucket.waiting() == 0:
            break
    lines = [json.loads(line) for line in refused.read_text().splitlines()]
    assert sorted(line["refused"][0]["code"] for line in lines) == ["invalid_request", "not_parquet"]
    assert {line["body"] for line in lines} >= {"hello"}
    assert bucket.waiting() == 0


def test_a_file_that_was_overwritten_is_reported(bucket: Bucket) -> None:
    """And registered once, with the rows of the first one; its message stays."""
    bucket.put("a.parquet", 1, 2)
    assert bucket.run("--once").returncode == 0
    bucket.put("a.parquet", 3, 4)
    done = bucket.run("--once")
    assert done.returncode == 1
    assert "[block_replaced]" in done.stderr
    assert bucket.waiting() == 1
    assert bucket.table.info().row_count == 2


def test_it_runs_until_it_is_stopped(bucket: Bucket) -> None:
    """Objects are in the table soon after they arrive; SIGTERM ends the wait for messages at once, with status 0."""
    process = subprocess.Popen(
        bucket.command("--fold-s", "0", "--json"), env=environment(bucket.service), stdout=subprocess.PIPE, text=True
    )
    for turn in range(3):
        bucket.put(f"{turn}.parquet", turn)
        wait_until(lambda turn=turn: bucket.table.info().block_count == turn + 1, "the object is in the table")
    wait_until(lambda: bucket.waiting() == 0, "the messages are deleted")
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=_WAIT_S)
    assert process.returncode == 0
    assert sum(json.loads(line)["registered"] for line in output.splitlines()) == 3


def test_a_queue_that_does_not_exist_is_an_error(bucket: Bucket) -> None:
    """At the start, before anything is taken; so is what is no queue, and a table that does not exist."""
    bucket.queue += "-none"
    done = bucket.run("--once")
    assert (done.returncode, "[store_error]" in done.stderr) == (1, True)
    bucket.queue = "ftp://x"
    done = bucket.run("--once")
    assert (done.returncode, "[invalid_request]" in done.stderr) == (1, True)


_DYING = """
import os, signal, sys
from lamella.client import Lamella
from lamella.client.arrivals.queue import QueueSource, queue_client
from lamella.client.arrivals.watch import Stop, Watch
from lamella.client.http.fake_transport import FakeTransport
from lamella.client.http.transport import PooledTransport

url, table, queue, moment = sys.argv[1:]
service = PooledTransport(url, timeout_s=60)

def handle(request):
    is_arrival = "/arrivals" in request.path
    if is_arrival and moment == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    answer = service.send(request)
    if is_arrival:
        os.kill(os.getpid(), signal.SIGKILL)
    return answer

class Silent:
    def taken(self, answer): pass
    def trouble(self, error, wait_s): raise error

stop = Stop()
client = queue_client(queue, {"key": "test", "secret": "test"})
source = QueueSource(client, queue, stop, max_files=3, fold_s=0, once=True)
Watch(Lamella(url, transport=FakeTransport(handle)).table(table), source, Silent(), stop, once=True).run()
"""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_consumer_that_dies_around_its_request_loses_and_doubles_nothing(
    bucket: Bucket, tmp_path: Path, moment: str
) -> None:
    """Before the service has the request nothing is registered; after its answer no message is deleted."""
    program = tmp_path / "program.py"
    program.write_text(_DYING)
    for number in range(5):
        bucket.put(f"{number}.parquet", number)
    command = [sys.executable, str(program), bucket.service.url, str(bucket.table), bucket.queue, moment]
    done = subprocess.run(command, env=environment(bucket.service), check=False, timeout=_WAIT_S)
    assert done.returncode == -9
    blocks = bucket.table.info().block_count
    assert (blocks > 0) == (moment == "after")
    wait_until(lambda: (bucket.run("--once").returncode, bucket.waiting()) == (0, 0), "the queue is empty")
    assert bucket.values() == Counter(range(5))


def killed_at_random(bucket: Bucket, kills: int, seed: int) -> None:
    """Two consumers are killed again and again while objects arrive and messages come twice; then one empties it."""
    rng = random.Random(seed)
    consumers: list[subprocess.Popen[bytes]] = []
    number = 0

    def start() -> None:
        command = bucket.command("--fold-s", "0.2", "--batch", "4")
        consumers.append(
            subprocess.Popen(
                command, env=environment(bucket.service), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        )

    try:
        for _ in range(kills):
            while len(consumers) < 2:
                start()
            for _ in range(rng.randint(1, 8)):
                bucket.put(f"{number}.parquet", number)
                if rng.random() < 0.3:
                    key = f"{rng.randint(0, number)}.parquet"
                    entity = {"bucket": {"name": bucket.name}, "object": {"key": key}}
                    bucket.send({"Records": [{"eventName": "ObjectCreated:Put", "s3": entity}]})
                number += 1
                time.sleep(rng.random() * 0.1)
            time.sleep(rng.random() * 1.5)
            victim = consumers.pop(rng.randrange(len(consumers)))
            victim.kill()
            victim.wait(timeout=_WAIT_S)
    finally:
        for consumer in consumers:
            consumer.kill()
            consumer.wait(timeout=_WAIT_S)
    wait_until(lambda: (bucket.run("--once").returncode, bucket.waiting()) == (0, 0), "the queue is empty")
    assert bucket.values() == Counter(range(number))
    assert bucket.table.verify(deep=True, sample=1.0).is_clean


@pytest.mark.slow
def test_consumers_that_are_killed_lose_and_double_nothing(bucket: Bucket) -> None:
    """A few kills at random moments."""
    killed_at_random(bucket, 6, 1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
def test_consumers_that_are_killed_often_lose_and_double_nothing(bucket: Bucket, seed: int) -> None:
    """A hundred kills in all."""
    killed_at_random(bucket, 25, 10 + seed)
