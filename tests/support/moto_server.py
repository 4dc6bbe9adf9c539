"""moto's S3 server on a loopback port of its own choice, with conditional writes that are atomic, as on S3.

moto first looks whether the key is there and then writes it, and other requests run in between: of several writers
more than one could succeed.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple

from support.moto_sessions import count_session_policies

_CONDITIONS = ("HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH")
_WRITES = ("PUT", "POST", "DELETE")


def main() -> None:
    """Serve until a signal ends the process."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    count_session_policies()
    moto = DomainDispatcherApplication(create_backend_app)
    lock = threading.Lock()

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] not in _WRITES or not any(environ.get(name) for name in _CONDITIONS):
            answer: Iterable[bytes] = moto(environ, start_response)
            return answer
        with lock:
            return list(moto(environ, start_response))

    run_simple("127.0.0.1", 0, app, threaded=True, request_handler=MotoRequestHandler)


if __name__ == "__main__":
    main()
