"""What worker processes load while they are measured."""
