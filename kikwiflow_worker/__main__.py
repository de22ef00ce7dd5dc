"""``python -m kikwiflow_worker`` is ``kikwiflow-worker``."""

from kikwiflow_worker.cli import main

if __name__ == "__main__":
    main()
