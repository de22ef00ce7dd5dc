"""The outbox relay: sends outbox events to a sink, at least once and in the order of each instance."""
