"""Use cases shared by worker, client and command line: load, decide, commit."""
