"""``lamella demo``: the whole way, from generated data to a proof that pruned answers are the full ones.

Needs the extras ``demo``, ``service`` and ``spark``, and Java. Everything is made below one build folder; the service
and Spark listen on loopback only and end with the demo.
"""
