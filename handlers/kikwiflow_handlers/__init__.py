"""Sample handlers: what the processes of the demonstration run, and a pattern for your own distribution."""
