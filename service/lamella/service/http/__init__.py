"""The HTTP layer, without features: routing, middleware, errors, negotiation, responses, limits, idempotency."""
