"""Handlers that wait for something else: many at once in one process."""

from benchmarks.plan import Plan, Scenario
from benchmarks.plugin.benchmark_handlers import WAIT_S
from benchmarks.processes import ring
from benchmarks.report import Figure, Section
from benchmarks.site import Site, measure
from benchmarks.workers import memory_mb

_SLOTS = 1_000


async def run(site: Site, plan: Plan) -> Section:
    """Measure how full the slots are, from the time that tasks spend in them, and the memory of the worker."""
    fills, rates, memories = [], [], []
    slots = plan.count(_SLOTS)
    async with site.database(ring(handler="wait_100_ms")) as database:
        await database.start_many("ring", 3 * slots)
        with database.workers(1, concurrency=slots) as (worker,):
            # The first second goes into filling the slots.
            warm_up_s = 2 * plan.warm_up_s
            for _ in range(plan.rounds):
                before = worker.metric("kikwiflow_task_duration_seconds_sum")
                rate = measure(site, [worker], warm_up_s=warm_up_s, window_s=plan.window_s)
                spent_s = worker.metric("kikwiflow_task_duration_seconds_sum") - before
                fills.append(spent_s / ((rate.seconds + warm_up_s) * slots))
                rates.append(rate.per_second)
                memories.append(memory_mb(worker.pid))
    section = Section(SCENARIO.name, SCENARIO.title)
    section.add(Figure(name="slots in use", unit="of all", samples=fills, at_least=0.9))
    section.add(Figure(name="memory of the worker", unit="MB", samples=memories, at_most=150))
    section.add(Figure(name="steps", unit="/s", samples=rates))
    section.notes.append(
        f"{slots:,} slots of {WAIT_S * 1000:g} ms could run {slots / WAIT_S:,.0f} steps/s; what is missing waits for the "
        "commit, in its slot"
    )
    return section


SCENARIO = Scenario(
    name="waiting", title="Handlers that wait 100 ms, 1,000 slots in one worker", run=run
)
