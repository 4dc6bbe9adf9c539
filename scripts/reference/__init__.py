"""Reference pages generated from the code: the HTTP interface and the Python client."""
