"""Log lines: one JSON object each, or plain text. Filters, their literals and request bodies are never logged."""

from __future__ import annotations

import datetime as dt
import logging
import sys
from typing import Any, Final, Literal, TextIO

import msgspec
import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from lamella.snapshot.tokens import unspelt

_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def _to_json(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    return msgspec.json.encode(event, enc_hook=str).decode()


def _renderers(style: Literal["json", "text"]) -> list[Processor]:
    if style == "text":
        return [structlog.dev.ConsoleRenderer(colors=False)]
    return [structlog.processors.format_exc_info, _to_json]


def make_log(
    level: str = "info", style: Literal["json", "text"] = "json", stream: TextIO | None = None
) -> FilteringBoundLogger:
    """Return a logger of its own, without process-wide settings; lines go to stderr by default."""
    log: FilteringBoundLogger = structlog.wrap_logger(
        structlog.WriteLogger(stream if stream is not None else sys.stderr),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            *_renderers(style),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        cache_logger_on_first_use=True,
    )
    return log


class RequestLine(msgspec.Struct, frozen=True, kw_only=True):
    """The log line of one request. ``ms``: from the first byte of the request to the last of its answer."""

    method: str
    path: str
    status: int
    ms: float
    bytes: int
    request_id: str
    trace_id: str | msgspec.UnsetType = msgspec.UNSET
    event: str = "request"
    level: str = "info"
    time: str = ""


class RequestLog:
    """Writes the lines of requests, at level info.

    JSON goes to the stream directly: through the log's processors a line would cost as much as all other work around a
    request.
    """

    def __init__(
        self,
        log: FilteringBoundLogger,
        level: str = "info",
        style: Literal["json", "text"] = "json",
        stream: TextIO | None = None,
    ) -> None:
        self._log = log
        self._stream = stream if stream is not None else sys.stderr
        self._encode = msgspec.json.Encoder().encode
        self._is_on = _LEVELS[level] <= logging.INFO
        self._direct = style == "json"

    def write(
        self,
        *,
        method: str,
        path: str,
        status: int,
        ms: float,
        size_bytes: int,
        request_id: str,
        trace_id: str | None = None,
    ) -> None:
        """Write one line."""
        if not self._is_on:
            return
        path = unspelt(path)
        if not self._direct:
            # terminals interpret control characters
            path = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in path)
            traced = {} if trace_id is None else {"trace_id": trace_id}
            self._log.info(
                "request",
                method=method,
                path=path,
                status=status,
                ms=ms,
                bytes=size_bytes,
                request_id=request_id,
                **traced,
            )
            return
        time = dt.datetime.now(dt.UTC).replace(tzinfo=None).isoformat() + "Z"
        line = RequestLine(
            method=method,
            path=path,
            status=status,
            ms=ms,
            bytes=size_bytes,
            request_id=request_id,
            trace_id=msgspec.UNSET if trace_id is None else trace_id,
            time=time,
        )
        self._stream.write(self._encode(line).decode() + "\n")
        self._stream.flush()


class LibraryFormatter(logging.Formatter):
    """Formats the lines of libraries (uvicorn, SQLAlchemy, Alembic) like the service's own."""

    def __init__(self, style: Literal["json", "text"] = "json") -> None:
        super().__init__()
        self._inner = structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_renderers(style)],
            foreign_pre_chain=[
                structlog.stdlib.add_log_level,
                structlog.stdlib.add_logger_name,
                structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            ],
        )

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        return self._inner.format(record)


def library_logging(level: str, style: Literal["json", "text"]) -> dict[str, Any]:
    """Return settings for :func:`logging.config.dictConfig`; plain values, which can be pickled."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"lamella": {"()": "lamella.service.telemetry.logs.LibraryFormatter", "style": style}},
        "handlers": {
            "stderr": {"class": "logging.StreamHandler", "formatter": "lamella", "stream": "ext://sys.stderr"}
        },
        "root": {"handlers": ["stderr"], "level": "WARNING"},
        "loggers": {
            "uvicorn": {"level": level.upper()},
            # The service's own middleware logs requests, by route and without query strings.
            "uvicorn.access": {"level": "CRITICAL", "propagate": False},
            # It warns of unknown statements, and quotes them.
            "sqlglot": {"level": "CRITICAL"},
        },
    }
