"""Deciding: pure functions and generators over values. No I/O, no clock, no logging."""
