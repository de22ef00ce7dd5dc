"""Measures of speed, each against its floor in the same run: ``python -m benchmarks`` (``make bench``).

A scenario is a module with a ``SCENARIO``; it can be run alone. The floor is what a bare script reaches with the same
documents on the same server, in turns with what it is compared with, so that a busy machine slows both.
"""
