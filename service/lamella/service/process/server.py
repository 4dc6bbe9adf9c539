"""Serves the app in one process, or in workers with a supervisor.

Without ``auth`` every request may do everything. :func:`serve` then refuses an address that other machines can reach,
unless the settings say ``insecure``.
"""

from __future__ import annotations

import tempfile
from typing import Any

from lamella.service.app import catalog_of, served
from lamella.service.config.check import refuse_certificate, refuse_unsafe, refuse_unwritable
from lamella.service.config.settings import Settings
from lamella.service.http.connections import ClientConnection
from lamella.service.process.supervisor import listening, run_alone, run_workers
from lamella.service.process.threads import limit_arenas
from lamella.service.process.worker_app import WorkerApp
from lamella.service.telemetry.logs import library_logging
from lamella.service.telemetry.metrics import share_numbers


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT, then for ``drain_s``; running requests may finish within ``shutdown_grace_s``.

    A second signal ends it at once.

    Raises:
        InvalidRequest: invalid or unsafe settings (:func:`refuse_unsafe`), or a folder that cannot be written.
        InvalidSettings: the address cannot be used; nothing was started, and nothing logged.
    """
    refuse_unsafe(settings)
    refuse_certificate(settings)
    refuse_unwritable(settings)
    limit_arenas()
    options: dict[str, Any] = {
        "host": settings.host,
        "port": settings.port,
        "log_config": library_logging(settings.log_level, settings.log_format),
        "access_log": False,
        "server_header": False,
        "timeout_graceful_shutdown": settings.shutdown_grace_s,
        "timeout_keep_alive": settings.keep_alive_s,
        "http": ClientConnection,
        "ws": "none",
        "proxy_headers": bool(settings.trusted_proxies),
        "forwarded_allow_ips": settings.trusted_proxies,
        "ssl_certfile": settings.tls_cert_file,
        "ssl_keyfile": settings.tls_key_file,
    }
    with listening(settings.host, settings.port, settings.workers) as sockets:
        if settings.workers == 1:
            run_alone(served(settings, is_alone=True), options, sockets[0])
            return
        catalog_of(settings).close()  # migrate once, and fail here instead of in every worker
        with tempfile.TemporaryDirectory(prefix="lamella-metrics-") as folder:
            share_numbers(folder)
            run_workers(WorkerApp(settings.model_dump_json()), options, sockets)
