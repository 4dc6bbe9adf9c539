"""Vacuum, leases, verification and the health of tables."""
