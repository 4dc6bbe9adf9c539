"""How long tests keep a connection to a service that nobody uses."""

from __future__ import annotations

from typing import Final

import httpx2

#: A service closes one after 5 s, which is what the library waits as well: a request that is sent at that very moment
#: is lost. Ours are given up before.
LIMITS: Final = httpx2.Limits(keepalive_expiry=2.0)
