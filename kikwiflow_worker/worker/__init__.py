"""The daemon: running claimed tasks, handlers, health, signals."""
