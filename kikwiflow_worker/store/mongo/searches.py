"""Everything that people look for, in one object."""

from kikwiflow_worker.store.mongo.figures import Figures
from kikwiflow_worker.store.mongo.instance_search import InstanceSearches
from kikwiflow_worker.store.mongo.task_search import TaskSearches
from kikwiflow_worker.store.mongo.timelines import Timelines


class Searches(InstanceSearches, TaskSearches, Timelines, Figures):
    """The search port of one database."""
