"""The engine alone: no database, no event loop, no user code."""

import time

from benchmarks.plan import Plan, Scenario
from benchmarks.processes import inline
from benchmarks.report import Figure, Section
from benchmarks.site import Site, now
from kikwiflow_worker.engine.draft import Surroundings
from kikwiflow_worker.engine.effects import HandlerReturned
from kikwiflow_worker.engine.retries import RetryDefaults
from kikwiflow_worker.engine.segments import start_instance
from kikwiflow_worker.model.capability import Capabilities, Capability, HandlerKind
from kikwiflow_worker.model.definition import ProcessDefinition, parse_definition
from kikwiflow_worker.model.runtime import ProcessInstance

_NODES = 100
_VARIABLES = 10


async def run(site: Site, plan: Plan) -> Section:  # noqa: ARG001 - it needs no server
    """Measure nodes a second of processor time, half of them handlers and half of them gateways."""
    definition = parse_definition(inline(_NODES)).file.deployed(definition_id="inline:1", version=1)
    _rate(definition, plan.warm_up_s)
    rates = [_rate(definition, plan.window_s) for _ in range(plan.rounds)]
    section = Section(SCENARIO.name, SCENARIO.title)
    section.add(Figure(name="inline nodes", unit="/s", samples=rates, at_least=100_000))
    return section


def _rate(definition: ProcessDefinition, seconds: float) -> float:
    at = now()
    instance = ProcessInstance(
        id="0d6ae1f2-0000-4000-8000-000000000001",
        business_key="ORDER-1",
        definition_id=definition.id,
        definition_key=definition.key,
        definition_version=definition.version,
        started_at=at,
        variables={f"v{number}": number for number in range(_VARIABLES)},
    )
    capability = Capability(HandlerKind.TASK_HANDLER, "no_op")
    surroundings = Surroundings(
        now=at, capabilities=Capabilities([capability]), retry_defaults=RetryDefaults()
    )
    # It waits for nothing: processor time is the time it takes on a machine that does nothing else.
    runs, began = 0, time.process_time()
    while time.process_time() - began < seconds:
        _walk(definition, instance, surroundings)
        runs += 1
    return runs * (_NODES + 2) / (time.process_time() - began)


def _walk(
    definition: ProcessDefinition, instance: ProcessInstance, surroundings: Surroundings
) -> None:
    """Run the instance from start to end; handlers return at once."""
    segment = start_instance(definition, instance, surroundings)
    reply = HandlerReturned(at=surroundings.now)
    try:
        next(segment)
        while True:
            segment.send(reply)
    except StopIteration:
        return


SCENARIO = Scenario(name="engine", title="The engine alone", run=run)
