"""Who asks, and what they may do."""

from kikwiflow_worker.model.identity import Identity, Role

__all__ = ["Identity", "Role"]
