"""The command line, and the only place beside the client that names concrete classes."""
