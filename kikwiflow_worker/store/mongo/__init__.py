"""The MongoDB adapter of the ports in ``kikwiflow_worker.store.protocol``."""
