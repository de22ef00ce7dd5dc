"""The command line, and the only place beside the client that names concrete classes."""

from kikwiflow_worker.cli.app import main

__all__ = ["main"]
