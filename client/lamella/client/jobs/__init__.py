"""Maintenance jobs, and the worker that runs them in processes of their own."""
