"""A queue of SQS that gets the event notifications of a bucket, from S3 itself, through SNS or through EventBridge.

A message is deleted when each of its files is in the table, or needs no registration. Messages with refused files, and
messages that cannot be read, stay in the queue: after as many receives as its redrive policy says, SQS moves them to
the dead-letter queue. Without one, ``refused_file`` takes them.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from lamella.client.arrivals.watch import Batch, Stop
from lamella.snapshot.arrivals import is_transient, read_message
from lamella.snapshot.errors import InvalidRequest, LamellaError, StoreError
from lamella.snapshot.wire import ArrivalsAnswer, RefusedFile

#: Limits of SQS: messages of one receive or delete, and the longest wait of a receive.
_MESSAGES: Final = 10
_LONG_POLL_S: Final = 20
#: The wait of a receive that completes a batch, and of one that must only say that there is nothing.
_SHORT_POLL_S: Final = 1
_REGION: Final = re.compile(r"(?:sqs\.)?([a-z]{2}(?:-[a-z]+)+-\d)\.(?:queue\.)?(?:amazonaws|api)\.")
_DEFAULT_REGION: Final = "us-east-1"
#: Names of credentials in fsspec's options for S3, and in those of botocore.
_CREDENTIALS: Final = {"key": "aws_access_key_id", "secret": "aws_secret_access_key", "token": "aws_session_token"}


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the queue. ``files``: locations of files that were created. ``error``: why it cannot be read."""

    message_id: str
    receipt: str
    body: str
    receives: int
    files: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    ignored: dict[str, int] = {}
    error: LamellaError | None = None


class QueueSource:
    """The messages of one queue.

    ``client``: botocore's client of SQS. ``max_files``: of one batch. ``fold_s``: how long the first message of a batch
    waits for others. ``once``: do not wait for messages. ``refused_file``: where messages go, as lines of JSON, that
    were refused ``tries`` times; None: they stay.
    """

    def __init__(
        self,
        client: Any,
        url: str,
        stop: Stop,
        *,
        max_files: int,
        fold_s: float,
        once: bool = False,
        refused_file: Path | None = None,
        tries: int = 3,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._url = url
        self._stop = stop
        self._max_files = max_files
        self._fold_s = fold_s
        self._once = once
        self._refused_file = refused_file
        self._tries = tries
        self._monotonic = monotonic
        self._refused: set[str] = set()

    def has_dead_letter_queue(self) -> bool:
        """Returns whether SQS moves messages that are never deleted away. Raises StoreError: there is no such queue, or
        no permission."""
        answer = self._ask("get_queue_attributes", QueueUrl=self._url, AttributeNames=["RedrivePolicy"])
        return "RedrivePolicy" in answer.get("Attributes", {})

    def take(self) -> Batch | None:
        """Returns the files of the next messages; None if none came within the wait."""
        messages: list[Message] = []
        self._stop.wait(lambda: self._receive(messages))  # what is received at the moment of a signal comes again
        if not messages or (self._once and all(each.message_id in self._refused for each in messages)):
            return None
        files = dict.fromkeys(each for message in messages for each in message.files)
        removed = dict.fromkeys(each for message in messages for each in message.removed)
        unreadable = tuple(
            RefusedFile(path=f"message {each.message_id}", code=each.error.code, reason=each.error.message)
            for each in messages
            if each.error is not None
        )
        ignored: Counter[str] = Counter()
        for message in messages:
            ignored.update(message.ignored)
        return Batch(
            files=tuple(files),
            removed=tuple(removed),
            marks=tuple(messages),
            unreadable=unreadable,
            ignored=dict(ignored),
        )

    def done(self, batch: Batch, answer: ArrivalsAnswer) -> None:
        """Delete the messages of the batch, but those with files that were refused."""
        refused = {each.path: each for each in answer.refused}
        finished, moved = [], []
        for message in batch.marks:
            assert isinstance(message, Message)  # noqa: S101  # this source made the batch
            wrong = [refused[each] for each in (*message.files, *message.removed) if each in refused]
            wrong += [each for each in batch.unreadable if each.path == f"message {message.message_id}"]
            if not wrong:
                finished.append(message)
                continue
            self._refused.add(message.message_id)
            is_last = self._refused_file is not None and message.receives >= self._tries
            if is_last and not any(is_transient(each.code) for each in wrong):
                moved.append((message, wrong))
        if moved and self._refused_file is not None:
            _write_refused(self._refused_file, moved)
        self._delete([*finished, *(message for message, _ in moved)])

    def _receive(self, messages: list[Message]) -> None:
        """Append messages until the batch is full, or the first one has waited long enough."""
        first_s = None
        while sum(len(each.files) for each in messages) < self._max_files:
            is_first = first_s is None
            wait_s = _LONG_POLL_S if is_first and not self._once else _SHORT_POLL_S
            answer = self._ask(
                "receive_message",
                QueueUrl=self._url,
                MaxNumberOfMessages=_MESSAGES,
                WaitTimeSeconds=wait_s,
                AttributeNames=["ApproximateReceiveCount"],
            )
            found = [_message(each) for each in answer.get("Messages", ())]
            messages += found
            now_s = self._monotonic()
            first_s = now_s if first_s is None else first_s
            if not found or now_s - first_s >= self._fold_s:
                return

    def _delete(self, messages: Sequence[Message]) -> None:
        for start in range(0, len(messages), _MESSAGES):
            some = messages[start : start + _MESSAGES]
            entries = [{"Id": str(at), "ReceiptHandle": each.receipt} for at, each in enumerate(some)]
            # A message whose deletion fails comes again, and its files are in the table.
            self._ask("delete_message_batch", QueueUrl=self._url, Entries=entries)

    def _ask(self, method: str, **arguments: Any) -> Mapping[str, Any]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            answer: Mapping[str, Any] = getattr(self._client, method)(**arguments)
        except (BotoCoreError, ClientError) as error:
            raise StoreError(f"the queue {self._url} failed: {error}", queue=self._url) from error
        return answer


def queue_client(url: str, options: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> Any:
    """Returns botocore's client for a queue. ``options``: fsspec's options for S3, whose credentials are used.

    Raises:
        InvalidRequest: the URL is not that of a queue.
    """
    import botocore.session
    from botocore.config import Config

    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.path.count("/") < 2:
        raise InvalidRequest(f"{url!r} is not the URL of a queue, such as https://sqs.eu-central-1.amazonaws.com/1/q")
    found = _REGION.search(parts.netloc)
    client_options = options.get("client_kwargs", {})
    region = (
        found[1]
        if found
        else client_options.get("region_name")
        or environment.get("AWS_REGION")
        or environment.get("AWS_DEFAULT_REGION")
        or _DEFAULT_REGION
    )
    session = botocore.session.Session(profile=options.get("profile"))
    given = {name: options[mine] for mine, name in _CREDENTIALS.items() if options.get(mine) is not None}
    return session.create_client(
        "sqs",
        region_name=region,
        endpoint_url=f"{parts.scheme}://{parts.netloc}",
        config=Config(retries={"mode": "standard"}, read_timeout=_LONG_POLL_S + 20),
        **given,
    )


def _message(received: Mapping[str, Any]) -> Message:
    body = received.get("Body", "")
    made = {
        "message_id": received.get("MessageId", ""),
        "receipt": received["ReceiptHandle"],
        "body": body,
        "receives": int(received.get("Attributes", {}).get("ApproximateReceiveCount", 1)),
    }
    try:
        events = read_message(body)
    except InvalidRequest as error:
        return Message(**made, error=error)
    return Message(**made, files=events.created, removed=events.deleted, ignored=events.ignored)


def _write_refused(file: Path, refused: Sequence[tuple[Message, Sequence[RefusedFile]]]) -> None:
    """Append messages to a file, and have them on disk."""
    lines = [
        msgspec.json.encode({"message_id": message.message_id, "refused": wrong, "body": message.body}) + b"\n"
        for message, wrong in refused
    ]
    with file.open("ab") as out:
        out.write(b"".join(lines))
        out.flush()
        os.fsync(out.fileno())
