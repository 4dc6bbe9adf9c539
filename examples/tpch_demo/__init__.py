"""The parts of ``examples/demo.py``: the tables, the service and the Spark session, the queries and their answers."""
