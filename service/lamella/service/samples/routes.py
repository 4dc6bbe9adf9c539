"""The route of ``.../sample``."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.catalog import Catalog, current_table
from lamella.service.http.admission import read_json
from lamella.service.http.routing import ServedOperation, json_response, require_json
from lamella.service.process.threads import Threads
from lamella.service.samples.samples import Samples
from lamella.snapshot.wire import SampleAnswer, SampleRequest
from lamella.snapshot.wire.operations import samples as operations

_REQUEST: Final = msgspec.json.Decoder(SampleRequest)


class SampleRoutes:
    """Reads rows; ``sampling`` are threads of their own, so that samples do not use up those of prunes."""

    def __init__(self, *, catalog: Catalog, sampling: Threads, samples: Samples) -> None:
        self._catalog = catalog
        self._sampling = sampling
        self._samples = samples

    async def sample(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def work() -> SampleAnswer:
            payload = read_json(_REQUEST, body)
            return self._samples.read(current_table(self._catalog, namespace, name), payload)

        return json_response(await self._sampling.run(work))

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (ServedOperation(operations.SAMPLE, self.sample),)
