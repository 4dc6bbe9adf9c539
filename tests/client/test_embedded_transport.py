"""The transports of an embedded lake, over applications that do one thing each."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import tracemalloc
import types
import weakref
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import ExitStack
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest

from lamella.client import AsyncLamella, Lamella
from lamella.client.http import embedded
from lamella.client.http.embedded import App, AsyncEmbeddedTransport, EmbeddedService, EmbeddedTransport, Receive, Send
from lamella.client.http.transport import HttpRequest, HttpResponse, TransportFailure, folder_of, parse_address
from lamella.snapshot.errors import InvalidRequest, Unavailable

GET = HttpRequest(method="GET", target="/v1/x?y=%20")
Respond = Callable[[MutableMapping[str, Any], Receive, Send], Any]
Open = Callable[..., EmbeddedService]


async def whole(send: Send, body: bytes = b"", status: int = 200) -> None:
    """Send an answer of one part."""
    await send({"type": "http.response.start", "status": status, "headers": [(b"X-Kind", b"Pot")]})
    await send({"type": "http.response.body", "body": body})


def application(respond: Respond, said: list[str] | None = None) -> App:
    """An application that is ready, and answers all else as it is told; ``said``: what its lifespan was told."""

    async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            scope["state"]["key"] = "of the start"
            for step in ("startup", "shutdown"):
                assert (await receive())["type"] == f"lifespan.{step}"
                if said is not None:
                    said.append(step)
                await send({"type": f"lifespan.{step}.complete"})
        elif scope["path"] == "/health/ready":
            await whole(send)
        else:
            await respond(scope, receive, send)

    return app


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Open]:
    """Opens applications; they end with the test."""
    with ExitStack() as opened:

        def start(respond: Respond, said: list[str] | None = None) -> EmbeddedService:
            service = EmbeddedService(tmp_path, {}, open_app=lambda _folder, _settings: application(respond, said))
            opened.callback(service.close)
            service.opened.result(60)
            return service

        yield start


def by_thread(service: EmbeddedService, request: HttpRequest, timeout_s: float = 60.0) -> HttpResponse:
    """By the synchronous transport."""
    return EmbeddedTransport(service, timeout_s).send(request)


def by_asyncio(service: EmbeddedService, request: HttpRequest, timeout_s: float = 60.0) -> HttpResponse:
    """By the asynchronous transport, from an event loop that ends."""
    return asyncio.run(AsyncEmbeddedTransport(service, timeout_s).send(request))


send_by = pytest.mark.parametrize("send", [by_thread, by_asyncio])


@send_by
def test_a_request_arrives_as_it_was_given(serve: Open, send: Callable[..., HttpResponse]) -> None:
    """Method, target, headers and body reach the application; status, headers and body come back."""
    seen: list[Any] = []

    async def respond(scope: MutableMapping[str, Any], receive: Receive, answer: Send) -> None:
        seen.append((scope, await receive()))
        await whole(answer, b"short and stout", 418)

    service = serve(respond)
    request = HttpRequest(method="POST", target="/v1/a%20b?y=%20", headers=(("X-Test", "yes"),), body=b"{}")
    response = send(service, request, 1.5)
    assert (response.status, response.body, response.headers) == (418, b"short and stout", {"x-kind": "Pot"})
    ((scope, message),) = seen
    assert (scope["method"], scope["path"], scope["raw_path"]) == ("POST", "/v1/a b", b"/v1/a%20b")
    assert scope["query_string"] == b"y=%20"
    assert message == {"type": "http.request", "body": b"{}", "more_body": False}
    assert dict(scope["headers"]) == {
        b"host": b"localhost",
        b"content-length": b"2",
        b"lamella-timeout-ms": b"1500",
        b"x-test": b"yes",
    }
    assert scope["state"] == {"key": "of the start"}


@send_by
def test_an_answer_that_is_not_whole_is_a_failure(serve: Open, send: Callable[..., HttpResponse]) -> None:
    """An application that fails, or ends, before the end of its answer may have done what it was asked."""

    async def respond(scope: MutableMapping[str, Any], _receive: Receive, answer: Send) -> None:
        if scope["path"] != "/nothing":
            await answer({"type": "http.response.start", "status": 200})
            await answer({"type": "http.response.body", "body": b"abc", "more_body": True})
        if scope["path"] == "/raise":
            raise ValueError("no")

    service = serve(respond)
    for target, reason in (("/raise", "cut off"), ("/end", "cut off"), ("/nothing", "did not answer")):
        with pytest.raises(TransportFailure, match=reason) as caught:
            send(service, HttpRequest(method="GET", target=target))
        assert caught.value.sent


@send_by
def test_a_silent_service_is_given_up_and_notified(serve: Open, send: Callable[..., HttpResponse]) -> None:
    """What does not answer within the time is left; it learns that nobody waits, and is not stopped."""
    left = threading.Event()

    async def respond(_scope: MutableMapping[str, Any], receive: Receive, answer: Send) -> None:
        await receive()
        assert (await receive())["type"] == "http.disconnect"
        await whole(answer)  # as if nobody had left
        left.set()

    service = serve(respond)
    with pytest.raises(TransportFailure, match="no answer in time") as caught:
        send(service, GET, 0.05)
    assert caught.value.sent
    assert left.wait(60)


def test_a_slow_answer_whose_parts_come_in_time_is_waited_for(serve: Open) -> None:
    """The time is for each part, not for the whole."""

    async def respond(_scope: MutableMapping[str, Any], _receive: Receive, answer: Send) -> None:
        await answer({"type": "http.response.start", "status": 200})
        for _ in range(40):
            await asyncio.sleep(0.05)
            await answer({"type": "http.response.body", "body": b"x", "more_body": True})
        await answer({"type": "http.response.body"})

    assert by_thread(serve(respond), GET, 1.5).body == b"x" * 40


def test_a_large_answer_is_in_memory_once(serve: Open) -> None:
    """Its parts are not kept beside the whole."""
    part, count = 1 << 20, 64

    async def respond(_scope: MutableMapping[str, Any], _receive: Receive, answer: Send) -> None:
        await answer({"type": "http.response.start", "status": 200})
        for number in range(count):
            await answer({"type": "http.response.body", "body": bytes([number]) * part, "more_body": True})
        await answer({"type": "http.response.body"})

    service = serve(respond)
    tracemalloc.start()
    try:
        response = by_thread(service, GET)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(response.body) == part * count
    assert response.body[-1] == count - 1
    # A buffer that grows by an eighth is moved with what it holds, at worst.
    assert peak < 1.5 * part * count


def test_a_request_that_is_cancelled_is_left_by_its_client_only(serve: Open) -> None:
    """A change that has begun is finished."""
    begun, finished = threading.Event(), threading.Event()

    async def respond(_scope: MutableMapping[str, Any], receive: Receive, answer: Send) -> None:
        await receive()
        begun.set()
        assert (await receive())["type"] == "http.disconnect"
        await asyncio.sleep(0)
        finished.set()
        await whole(answer)

    service = serve(respond)

    async def go() -> None:
        sent = asyncio.ensure_future(AsyncEmbeddedTransport(service, 60.0).send(GET))
        await asyncio.to_thread(begun.wait, 60)
        sent.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sent

    asyncio.run(go())
    assert finished.wait(60)


def test_closing_finishes_the_requests_that_run_and_refuses_others(serve: Open) -> None:
    """The application is ended after them, once."""
    said: list[str] = []
    begun, may_end = threading.Event(), threading.Event()

    async def respond(_scope: MutableMapping[str, Any], _receive: Receive, answer: Send) -> None:
        begun.set()
        await asyncio.to_thread(may_end.wait, 60)
        said.append("answered")
        await whole(answer, b"late")

    service = serve(respond, said)
    pending = service.request(GET, 60.0)
    assert begun.wait(60)
    closing = threading.Thread(target=service.close)
    closing.start()
    may_end.set()
    closing.join(60)
    assert pending.result(60).body == b"late"
    assert said == ["startup", "answered", "shutdown"]
    with pytest.raises(TransportFailure, match="it is closed") as caught:
        service.request(GET, 60.0)
    assert (caught.value.sent, caught.value.transient) == (False, False)
    service.close()


def test_a_service_that_nobody_has_ends(tmp_path: Path) -> None:
    """A lake that nobody closed holds no thread."""
    said: list[str] = []

    async def respond(_scope: MutableMapping[str, Any], _receive: Receive, answer: Send) -> None:
        await whole(answer)

    service = EmbeddedService(tmp_path, {}, open_app=lambda *_: application(respond, said))
    service.opened.result(60)
    thread, gone = service._thread, weakref.ref(service)
    del service
    gc.collect()
    assert gone() is None
    thread.join(60)
    assert not thread.is_alive()
    assert said == ["startup", "shutdown"]


@pytest.mark.parametrize("step", ["startup", "ready"])
def test_what_cannot_be_opened_says_why(tmp_path: Path, step: str) -> None:
    """The error of a start, or of a service that is not ready, is that of opening; no thread is left."""
    problem = b'{"type":"about:blank","title":"t","status":503,"detail":"the warehouse is away","code":"unavailable"}'

    async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await receive()
            if step == "startup":
                await send({"type": "lifespan.startup.failed", "message": "the warehouse is away"})
                return
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
        else:
            await whole(send, problem, 503)

    service = EmbeddedService(tmp_path, {}, open_app=lambda *_: app)
    with pytest.raises(Unavailable, match="the warehouse is away"):
        service.opened.result(60)
    service.close()
    assert not service._thread.is_alive()


def _points(*points: EntryPoint) -> Callable[..., EntryPoints]:
    def found(group: str) -> EntryPoints:
        return EntryPoints(points).select(group=group)

    return found


@pytest.mark.parametrize("kind", ["none", "without its packages"])
def test_without_the_service_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Whether nothing registers one, or what it needs is missing; the same for both clients."""
    broken = EntryPoint("service", "lamella_absent.module:open_app", embedded.GROUP)
    monkeypatch.setattr(embedded, "entry_points", _points(*([] if kind == "none" else [broken])))
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'lamella\[service\]'"):
        Lamella.embedded(tmp_path / "w")

    async def go() -> None:
        with pytest.raises(ModuleNotFoundError, match=r"pip install 'lamella\[service\]'"):
            await AsyncLamella.embedded(tmp_path / "w")

    asyncio.run(go())
    assert not (tmp_path / "w").exists()


def test_another_distribution_may_bring_the_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the entry point names is given the folder and the settings."""
    monkeypatch.setattr(
        embedded, "entry_points", _points(EntryPoint("service", f"{__name__}:open_for_test", embedded.GROUP))
    )
    module = types.ModuleType(__name__)
    module.open_for_test = open_for_test  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, __name__, module)
    with Lamella.embedded(tmp_path, settings={"page_files": 1}) as lake:
        assert lake.tables("db") == ("t",)
        assert lake.url == f"file://{tmp_path}"
    assert [(str(tmp_path), {"page_files": 1})] == OPENED


OPENED: list[tuple[str, dict[str, Any]]] = []


def open_for_test(folder: str, settings: Mapping[str, Any]) -> App:
    """An application with one table."""
    OPENED.append((folder, dict(settings)))

    async def respond(_scope: MutableMapping[str, Any], _receive: Receive, answer: Send) -> None:
        await whole(answer, b'{"tables": ["t"]}')

    return application(respond)


def test_a_folder_is_not_the_url_of_a_service(tmp_path: Path) -> None:
    """The error says how a folder is opened, and how it is served."""
    with pytest.raises(InvalidRequest, match=r"Lamella\.embedded.*lamella serve --warehouse"):
        Lamella(f"file://{tmp_path}")
    with pytest.raises(InvalidRequest):
        parse_address("/work")


def test_a_folder_may_be_given_in_each_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path, one below home, a URL with escapes; other URLs are left to the service to refuse."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/x")
    assert folder_of("a") == str(tmp_path / "a")
    assert folder_of(tmp_path) == str(tmp_path)
    assert folder_of("~/a") == "/home/x/a"
    assert folder_of("file:///a%20b") == "/a b"
    assert folder_of("s3://bucket/a") == "s3://bucket/a"
