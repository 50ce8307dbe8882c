"""The benchmark: the speed of the suite compared with textbook code. scripts/benchmark.py runs it."""
