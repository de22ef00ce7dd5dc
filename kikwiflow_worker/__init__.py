"""A durable process engine: a Python daemon whose only server is MongoDB.

Applications import ``Kikwiflow`` from ``kikwiflow_worker.client``; authors of handlers import from
``kikwiflow_worker.handler``.
"""

from importlib.metadata import version

__version__ = version("kikwiflow-worker")
