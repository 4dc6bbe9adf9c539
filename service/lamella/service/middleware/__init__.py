"""What surrounds every request, as plain ASGI: Starlette's own base class for this costs more than a prune."""

from lamella.service.middleware.access import AccessMiddleware
from lamella.service.middleware.body_limit import BodyLimitMiddleware
from lamella.service.middleware.direct import DirectMiddleware
from lamella.service.middleware.traced import traced

__all__ = ["AccessMiddleware", "BodyLimitMiddleware", "DirectMiddleware", "traced"]
