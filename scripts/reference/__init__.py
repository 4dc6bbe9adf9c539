"""The reference pages that are written from the code: the HTTP interface and the Python client."""
