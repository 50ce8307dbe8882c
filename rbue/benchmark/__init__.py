"""How fast the suite is beside textbook code: scripts/benchmark.py measures it."""
