# Written by scripts/write_sync_client.py from client/lamella/client/http/aio/connection.py: change that file.
"""Carries out calls over a transport: the base of :class:`lamella.client.Lamella`.

A process that makes only one kind of call can use it directly, such as a worker that requests signed URLs.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from lamella.client.http.blocks import AddressCache
from lamella.client.http.call import Answer, Call
from lamella.client.http.credential import credential_of
from lamella.client.http.exchange import Exchange, RetryPolicy
from lamella.client.http.profiles import Service, service_of
from lamella.client.http.recipe import ClientRecipe, client_again
from lamella.client.http.runtime import open_embedded, open_transport, sleep
from lamella.client.http.transport import Address, Outcome, Send, Transport, TransportFailure
from lamella.snapshot.ids import Ids


class Connection:
    """A connection to a service; the arguments are those of :class:`lamella.client.Lamella`."""

    def __init__(
        self,
        url: str | Address | None = None,
        *,
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        profile: str | None = None,
        timeout_s: float = 30.0,
        policy: RetryPolicy | None = None,
        transport: Transport | None = None,
        sleep: Callable[[float], None] = sleep,
        jitter: Callable[[], float] = random.random,
        ids: Ids | None = None,
        traces: bool = True,
    ) -> None:
        address: str | Address
        if isinstance(url, Address):
            service, address = Service(url=str(url)), url
        else:
            service = service_of(url, token, token_file, profile)
            address = service.url
        self._recipe = ClientRecipe(
            url=service.url,
            token=token,
            token_file=None if token_file is None else os.path.abspath(token_file),
            profile=profile,
            found=url is None and token is None and token_file is None,
            timeout_s=timeout_s,
            policy=policy,
            traces=traces,
        )
        self._has_own_transport = transport is not None
        #: Addresses of blocks, for answers of shape "ranges".
        self.addresses = AddressCache()
        self._exchange = Exchange(
            address,
            credential=credential_of(service.token, service.token_file),
            policy=policy,
            ids=ids,
            jitter=jitter,
            traces=traces,
        )
        self._transport = transport if transport is not None else open_transport(service.url, timeout_s)
        self._sleep = sleep

    @classmethod
    def embedded(
        cls,
        folder: str | os.PathLike[str],
        *,
        settings: Mapping[str, Any] | None = None,
        timeout_s: float = 60.0,
        policy: RetryPolicy | None = None,
        ids: Ids | None = None,
        traces: bool = True,
    ) -> Self:
        """Open the lake in a local folder without a server: the service runs in a thread of this process.

        The folder and its catalog (SQLite) are made if they are missing; ``lamella serve --warehouse FOLDER`` serves
        the same ones. Several processes may have it open at once. ``settings``: settings of the service by name, as in
        ``docs/settings.md``; environment variables are not read. :meth:`close` ends the service, as does the end of the
        process. A process that is forked afterwards must open the folder itself. See ``docs/embedded.md``.

        Raises:
            ModuleNotFoundError: the service is not installed: ``pip install 'lamella[service]'``.
            InvalidSettings: the settings cannot be used.
            LamellaError: the folder or its catalog cannot be used, such as one that a newer release has written.

        Example:
            >>> with Lamella.embedded(folder) as lake:
            ...     lake.tables("shop")
            ('arrivals', 'orders', 'rates')
        """
        address, transport = open_embedded(folder, settings or {}, timeout_s)
        return cls(address, policy=policy, transport=transport, ids=ids, traces=traces)

    @property
    def url(self) -> str:
        """The service's base URL; of an embedded lake the ``file://`` URL of its folder.

        Example:
            >>> lake.url
            'file:///.../lake'
        """
        return str(self._exchange.address)

    def close(self) -> None:
        """Close the connections.

        Example:
            >>> lake = Lamella.embedded(folder)
            >>> lake.close()
        """
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        """The copy in another process connects anew, to the same service; see ``docs/python.md#other-processes``."""
        if self._has_own_transport:
            raise TypeError(f"a {type(self).__name__} with a transport of its own cannot be pickled")
        return client_again, (type(self), self._recipe)

    def run(self, call: Call[Answer], idempotency_key: str | None = None) -> Answer:
        """Carry out a call of :mod:`lamella.client.http.call`, with retries, and return its answer.

        Example:
            >>> from lamella.client.http.tables import tables_call
            >>> lake.run(tables_call("shop")).tables
            ('arrivals', 'orders', 'rates')
        """
        steps = self._exchange.steps(call, idempotency_key)
        outcome: Outcome | None = None
        try:
            while True:
                step = steps.send(outcome)
                if isinstance(step, Send):
                    try:
                        outcome = self._transport.send(step.request)
                    except TransportFailure as failure:
                        outcome = failure
                else:
                    self._sleep(step.delay_s)
                    outcome = None
        except StopIteration as done:
            answer: Answer = done.value
            return answer
