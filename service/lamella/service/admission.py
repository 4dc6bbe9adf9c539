"""What stands between a request that may be made and its handler: its body, a place, and the time that it has.

Health probes and metrics do not come through here, so that a busy process is still seen to be alive.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access.gate import address_of
from lamella.service.access.principal import Principal
from lamella.service.bodies import Bodies, too_large
from lamella.service.deadline import HEADER, begin_change, begin_read, end, timeout_of
from lamella.service.metrics import Metrics
from lamella.service.places import Places
from lamella.service.settings import Settings
from lamella.snapshot.errors import Unavailable
