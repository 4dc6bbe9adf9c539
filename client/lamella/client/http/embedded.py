"""The service in this process: its event loop in a thread of its own, and the transports that ask it. No port.

The client never imports the service. An installed distribution that has one names a function in the entry point group
``lamella.embedded``: given a folder and settings, it returns an ASGI application.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from importlib.metadata import entry_points
from io import BytesIO
from typing import Any, Final
from urllib.parse import unquote

from lamella.client.http.transport import (
    CUT_OFF,
    FolderAddress,
    HttpRequest,
    HttpResponse,
    TransportFailure,
    folder_of,
    timeout_header,
)
from lamella.snapshot.errors import LamellaError, Unavailable

#: The group in which the service is found.
GROUP: Final = "lamella.embedded"

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
#: An ASGI application.
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

#: How long requests may take to end when the lake is closed; then they are given up, as by a service that stops.
_GRACE_S: Final = 30.0
_READY: Final = HttpRequest(method="GET", target="/health/ready")
_READY_S: Final = 60.0


def open_folder(folder: str, settings: Mapping[str, Any]) -> App:
    """Return the application for a folder.

    Raises:
        ModuleNotFoundError: the service is not installed.
        LamellaError: the folder or the settings cannot be used.
    """
    found = next(iter(entry_points(group=GROUP)), None)
    if found is None:
        raise _not_installed(None)
    try:
        opener = found.load()
    except ModuleNotFoundError as error:
        raise _not_installed(error.name) from error
    app: App = opener(folder, settings)
    return app


def _not_installed(missing: str | None) -> ModuleNotFoundError:
    why = "" if missing is None else f" ({missing} is not installed)"
    return ModuleNotFoundError(f"an embedded lake needs the service: pip install 'lamella[service]'{why}", name=missing)


class EmbeddedService:
    """A service that runs in a thread until :meth:`close`, the end of the process, or the end of its last user.

    ``opened`` is done when requests can be made, or has the error for which they cannot. ``open_app``: makes the
    application, in that thread.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        settings: Mapping[str, Any],
        *,
        open_app: Callable[[str, Mapping[str, Any]], App] = open_folder,
    ) -> None:
        path = folder_of(folder)
        self.address = FolderAddress(folder=path)
        self.opened: Future[None] = Future()
        self._pid = os.getpid()
        self._running = running = _Running()
        self._thread = threading.Thread(
            target=_serve,
            args=(running, self.opened, lambda: open_app(path, settings)),
            name="lamella-embedded",
            daemon=True,
        )
        self._finalizer = weakref.finalize(self, _end, running, self._thread, self._pid)
        self._thread.start()

    def request(self, request: HttpRequest, timeout_s: float) -> Future[HttpResponse]:
        """Have a request answered; the result raises TransportFailure. ``timeout_s``: for each part of the answer.

        A request that is cancelled is finished by the service as one whose client has gone.
        """
        if self._pid != os.getpid():
            raise TransportFailure(
                "it was opened before this process was forked; open it again in this one", sent=False, transient=False
            )
        failure = TransportFailure("it is closed", sent=False, transient=False)
        if not self._finalizer.alive:
            raise failure
        answering = self._running.answer(request, timeout_s)
        try:
            return asyncio.run_coroutine_threadsafe(answering, self._running.loop)
        except RuntimeError as error:  # it was closed in the meantime
            answering.close()
            raise failure from error

    def close(self) -> None:
        """End the running requests and the service. Returns when its files are closed; may be called again."""
        self._finalizer()


class EmbeddedTransport:
    """A :class:`~lamella.client.http.transport.Transport` to a service in this process."""

    def __init__(self, service: EmbeddedService, timeout_s: float) -> None:
        self._service = service
        self._timeout_s = timeout_s

    def send(self, request: HttpRequest) -> HttpResponse:
        """Send a request and return the complete response; raises TransportFailure."""
        answer = self._service.request(request, self._timeout_s)
        try:
            return answer.result()
        finally:
            answer.cancel()  # does nothing unless the wait was interrupted

    def close(self) -> None:
        """End the service."""
        self._service.close()


class AsyncEmbeddedTransport:
    """The same for asyncio. The service keeps an event loop of its own, so its work does not delay the caller's."""

    def __init__(self, service: EmbeddedService, timeout_s: float) -> None:
        self._service = service
        self._timeout_s = timeout_s

    async def send(self, request: HttpRequest) -> HttpResponse:
        """Send a request and return the complete response; raises TransportFailure."""
        return await asyncio.wrap_future(self._service.request(request, self._timeout_s))

    async def close(self) -> None:
        """End the service."""
        await asyncio.get_running_loop().run_in_executor(None, self._service.close)


class _Running:
    """What the thread and those who ask it share. Holds nothing of :class:`EmbeddedService`, which would never end."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.stop = asyncio.Event()
        self._app: App | None = None
        self._state: dict[str, Any] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, opened: Future[None], open_app: Callable[[], App]) -> None:
        """Open the application, and keep it until ``stop`` is set."""
        try:
            app = open_app()
            async with _lifespan(app) as self._state:
                self._app = app
                await self._require_ready()
                opened.set_result(None)
                await self.stop.wait()
                if self._tasks:
                    await asyncio.wait(self._tasks, timeout=_GRACE_S)
        except BaseException as error:
            if opened.done():
                raise
            opened.set_exception(error)

    async def answer(self, request: HttpRequest, timeout_s: float) -> HttpResponse:
        """Return the application's answer."""
        app = self._app
        if app is None or self.stop.is_set():
            raise TransportFailure("it is closed", sent=False, transient=False)
        wait_s = timeout_s if request.min_timeout_s is None else max(timeout_s, request.min_timeout_s)
        exchange = _Exchange(request, timeout_header(timeout_s, request.min_timeout_s), self._state)
        task = asyncio.ensure_future(exchange.run(app))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            while not exchange.ended.is_set():
                before = exchange.parts
                with suppress(TimeoutError):
                    await asyncio.wait_for(exchange.ended.wait(), wait_s)
                if not exchange.ended.is_set() and exchange.parts == before:
                    raise TransportFailure("no answer in time", sent=True)
        finally:
            exchange.leave()
        return exchange.response()

    async def _require_ready(self) -> None:
        """Raise the service's error unless it can read and write its folder and its catalog."""
        answer = await self.answer(_READY, _READY_S)
        if answer.status != 200:
            raise _problem(answer)


def _problem(answer: HttpResponse) -> LamellaError:
    import msgspec

    from lamella.snapshot.errors import from_code
    from lamella.snapshot.wire import Problem

    try:
        problem = msgspec.json.decode(answer.body, type=Problem)
    except msgspec.MsgspecError:
        return Unavailable(f"the embedded lake is not ready: status {answer.status}")
    return from_code(problem.code, problem.detail, {})


def _serve(running: _Running, opened: Future[None], open_app: Callable[[], App]) -> None:
    """Run the event loop of the service; the target of its thread."""
    asyncio.set_event_loop(running.loop)
    try:
        running.loop.run_until_complete(running.serve(opened, open_app))
        left = asyncio.all_tasks(running.loop)
        for task in left:
            task.cancel()
        running.loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        running.loop.run_until_complete(running.loop.shutdown_asyncgens())
        running.loop.run_until_complete(running.loop.shutdown_default_executor())
    finally:
        asyncio.set_event_loop(None)
        running.loop.close()


def _end(running: _Running, thread: threading.Thread, pid: int) -> None:
    """End the thread. This also runs when the service is garbage collected without being closed, maybe in the thread
    itself, which cannot wait for its own end. A forked child has no such thread and does nothing."""
    if os.getpid() != pid:
        return
    with suppress(RuntimeError):  # it has ended by itself: it could not be opened
        running.loop.call_soon_threadsafe(running.stop.set)
    if threading.current_thread() is not thread:
        thread.join()


@asynccontextmanager
async def _lifespan(app: App) -> AsyncIterator[dict[str, Any]]:
    """Start an application, and end it; yields the state that its requests get."""
    state: dict[str, Any] = {}
    given: asyncio.Queue[Message] = asyncio.Queue()
    said: asyncio.Queue[Message] = asyncio.Queue()
    scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.3"}, "state": state}
    task = asyncio.ensure_future(app(scope, given.get, said.put))

    async def step(name: str) -> None:
        await given.put({"type": f"lifespan.{name}"})
        answer = asyncio.ensure_future(said.get())
        await asyncio.wait({answer, task}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            answer.cancel()
            await task  # raises why it ended
            raise RuntimeError(f"the application ended before its {name}")
        message = answer.result()
        if message["type"] != f"lifespan.{name}.complete":
            with suppress(BaseException):
                await task
            raise Unavailable(f"the service did not reach its {name}: {message.get('message', '').strip()}")

    await step("startup")
    try:
        yield state
    finally:
        await step("shutdown")
        await task


class _Exchange:
    """One request and its answer, as an ASGI application reads and sends them.

    The parts of a body go into one buffer, whose bytes become the answer's: they are held once.
    """

    def __init__(self, request: HttpRequest, timeout: tuple[str, str], state: Mapping[str, Any]) -> None:
        #: Counts what has arrived.
        self.parts = 0
        self.ended = asyncio.Event()
        self._request: HttpRequest | None = request
        self._body: bytes | None = request.body
        self._left = asyncio.Event()
        self._status: int | None = None
        self._headers: dict[str, str] = {}
        self._answer = BytesIO()
        self._is_whole = False
        target, _, query = request.target.partition("?")
        headers = (("Host", "localhost"), ("Content-Length", str(len(request.body))), timeout, *request.headers)
        self._scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": "http",
            "path": unquote(target),
            "raw_path": target.encode("ascii"),
            "query_string": query.encode("ascii"),
            "root_path": "",
            "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers],
            "client": ("127.0.0.1", 0),
            "server": ("localhost", 80),
            "state": dict(state),
        }

    async def run(self, app: App) -> None:
        """Let the application answer."""
        try:
            await app(self._scope, self._receive, self._send)
        except Exception:
            # The service has logged it. What was sent before is not a whole answer.
            self.parts += 1
        finally:
            self.ended.set()

    def leave(self) -> None:
        """Tell the application that the client is gone."""
        self._left.set()

    def response(self) -> HttpResponse:
        """Return the answer; raises TransportFailure when it is not whole."""
        if self._status is None or not self._is_whole:
            raise TransportFailure(CUT_OFF if self._status is not None else "the service did not answer", sent=True)
        return HttpResponse(status=self._status, headers=self._headers, body=self._answer.getvalue())

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if self._left.is_set():
            return
        self.parts += 1
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = {
                bytes(name).decode("latin-1").lower(): bytes(value).decode("latin-1")
                for name, value in message.get("headers", ())
            }
        elif message["type"] == "http.response.body":
            if self._scope["method"] != "HEAD":
                self._answer.write(message.get("body", b""))
            if not message.get("more_body", False):
                self._is_whole = True
                self.ended.set()
