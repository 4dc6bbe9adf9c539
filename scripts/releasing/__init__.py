"""The parts of `make release` and `make publish`."""
