"""Turns random processes into definitions, and into what their tokens do."""

from collections.abc import Iterator
from itertools import count

from kikwiflow_worker.model.definition import ProcessDefinition
from tests.support.definitions import Json, a_file, a_flow, a_node, a_start, a_task, an_end, read
from tests.support.random_process import Block as AnyBlock
from tests.support.random_process import (
    Call,
    Catch,
    Choice,
    Delay,
    Events,
    Loop,
    Meet,
    Reminder,
    Rescue,
    Sequence,
    Split,
    Stop,
    Wait,
    Work,
)
from tests.support.token_flow import Branches, Children, Flow, Halt, Pass, Race, Rounds, Side, Steps

ROOT = "random"

Built = tuple[str, Flow]
"""The id of the first node of something, and what a token does there."""


class ProcessBuilder:
    """Turns a process into definitions; remembers how its user code has to answer.

    Attributes:
        variables: What the instance is to be started with.
        answers: The answer of each answer provider.
        keys: The keys of each correlation-keys provider.
        handlers: What each handler does: ``work``, ``reset`` or ``count``, and the variable it does it to.
        raised: The code that a handler raises after that.
        catching: The handlers with an error handler for every code.
        providers: The stored form of every capability that is no task handler.
        met: The keys that are thrown, which nobody else may send.
        throwers: The key of each thrower.
        keeping: The throwers whose message is kept if nobody waits for it yet.
        raced: Hosts that something may end, and what may end them.
        sequential: The call activities that run one child at a time.
        definitions: The definitions by key; ``ROOT`` is the one to start.
        flow: What the token of a started instance does.
    """

    def __init__(self, process: Sequence) -> None:
        self.variables: dict[str, object] = {"sla": "PT30M"}
        self.answers: dict[str, str] = {}
        self.keys: dict[str, list[str]] = {}
        self.handlers: dict[str, tuple[str, str]] = {}
        self.raised: dict[str, str] = {}
        self.catching: set[str] = set()
        self.providers: set[str] = {"due_date_provider:sla"}
        self.met: set[str] = set()
        self.throwers: dict[str, str] = {}
        self.keeping: set[str] = set()
        self.raced: set[str] = set()
        self.sequential: set[str] = set()
        self.definitions: dict[str, ProcessDefinition] = {}
        self._nodes: list[Json] = []
        self._joins: list[str] = []
        self._doomed = False
        self._numbers: Iterator[int] = count()
        self.flow = self._define(process, ROOT)

    @property
    def definition(self) -> ProcessDefinition:
        return self.definitions[ROOT]

    def _define(self, process: Sequence, key: str) -> Flow:
        around, self._nodes, self._joins = (self._nodes, self._joins), [], []
        entry, flow = self._sequence(process, "END")
        file = read(a_file(a_start(entry), *self._nodes, an_end(), key=key))
        self.definitions[key] = file.deployed(definition_id=f"{key}:1", version=1)
        self._nodes, self._joins = around
        return flow

    def _id(self, prefix: str) -> str:
        return f"{prefix}{next(self._numbers)}"

    def _add(self, node_id: str, node_type: str, *targets: str | Json, **fields: object) -> None:
        self._nodes.append(a_node(node_id, node_type, *targets, **fields))

    def _sequence(self, blocks: Sequence, target: str) -> Built:
        """Add the nodes of ``blocks``, the last of which leads to ``target``."""
        parts: list[Flow] = []
        for block in reversed(blocks):
            target, flow = self._block(block, target)
            parts.insert(0, flow)
        return target, Steps(tuple(parts))

    def _block(self, block: AnyBlock, target: str) -> Built:
        match block:
            case Work(before, after):
                node_id = self._handler("work", target, commitBefore=before, commitAfter=after)
                return node_id, Pass(node_id)
            case Wait():
                node_id = self._id("WAIT")
                race = self._host(node_id, block.events, target)
                self._add_host(node_id, "EXTERNAL_TASK", target, race, commitAfter=block.after)
                return node_id, race
            case Delay():
                node_id = self._id("DELAY")
                race = self._host(node_id, block.events, target)
                self._add_host(node_id, "TIMER_TASK", target, race, **self._due(block.kind))
                return node_id, race
            case Catch():
                return self._catch(block, target)
            case Rescue():
                return self._rescue(block, target)
            case Stop():
                node_id = self._id("STOP")
                self._nodes.append(an_end(node_id))
                return node_id, Halt()
            case Choice():
                return self._choice(block, target)
            case Loop():
                return self._loop(block, target)
            case Split():
                return self._split(block, target)
            case Meet():
                return self._meet(block, target)
            case Call():
                return self._call(block, target)

    # --- boundary events

    def _host(self, node_id: str, events: Events, target: str) -> Race:
        found: list[tuple[str, Flow]] = []
        if events.deadline is not None:
            event_id = self._id("DEADLINE")
            entry, flow = self._sequence(events.deadline, target)
            source = {"attachedToRef": node_id, **self._due(events.kind)}
            self._add(event_id, "BOUNDARY_INTERRUPTIVE_TIMER", entry, **source)
            found.append((event_id, flow))
        if events.catch is not None:
            event_id = self._id("CATCHEVENT")
            entry, flow = self._sequence(events.catch, target)
            source = {"attachedToRef": node_id, **self._key(events.kind, [f"key {event_id}"])}
            self._add(event_id, "BOUNDARY_INTERRUPTIVE_CATCH_EVENT", entry, **source)
            found.append((event_id, flow))
        if found:
            self.raced |= {node_id, *(event_id for event_id, _ in found)}
        return Race(node_id, tuple(found), self._reminder(node_id, events.reminder))

    def _reminder(self, node_id: str, reminder: Reminder | None) -> Side | None:
        if reminder is None:
            return None
        event_id = self._id("REMINDER")
        target = self._joins[-1] if reminder.to_join and self._joins else "END"
        entry, flow = self._sequence(reminder.path, target)
        policy = {
            "type": "RATE_DURATION",
            "expression": "PT20M",
            "maxOccurrences": reminder.times,
        }
        self._add(
            event_id,
            "BOUNDARY_NON_INTERRUPTIVE_TIMER",
            entry,
            attachedToRef=node_id,
            schedulePolicy=policy,
        )
        return Side(event_id, reminder.times, flow)

    def _add_host(
        self, node_id: str, node_type: str, target: str, race: Race, **fields: object
    ) -> None:
        events = [name for name, _ in race.events]
        events += [race.side.name] if race.side else []
        self._add(node_id, node_type, target, boundaryEventIds=events, **fields)

    def _due(self, kind: str) -> Json:
        return {
            "providerType": kind,
            "staticValue": "PT1H",
            "providerVariable": "sla",
            "providerBean": "sla",
        }

    def _key(self, kind: str, keys: list[str], *, group: bool = False) -> Json:
        name = self._id("keys_")
        match kind:
            case "STATIC" if not group:
                return {"providerType": "STATIC", "staticKey": keys[0]}
            case "BEAN":
                self.keys[name] = keys
                self.providers.add(f"correlation_keys_provider:{name}")
                return {"providerType": "BEAN", "providerBean": name}
            case _:
                self.variables[name] = keys if group else keys[0]
                return {"providerType": "VARIABLE", "providerVariable": name}

    # --- blocks

    def _handler(self, action: str, target: str, variable: str = "", **fields: object) -> str:
        node_id = self._id(action.upper())
        self._add_handler(node_id, action, target, variable, **fields)
        return node_id

    def _add_handler(
        self, node_id: str, action: str, target: str, variable: str = "", **fields: object
    ) -> None:
        self.handlers[node_id] = (action, variable or f"ran_{node_id}")
        self._nodes.append(a_task(node_id, target, executor=node_id, **fields))

    def _catch(self, block: Catch, target: str) -> Built:
        node_id = self._id("CATCH")
        group = block.policy is not None
        keys = [f"key {node_id} {index}" for index in range(block.keys if group else 1)]
        race = self._host(node_id, block.events, target)
        kinds: Json = {"catchType": "GROUP" if group else "STANDALONE", "matchPolicy": block.policy}
        source = self._key(block.kind, keys, group=group)
        self._add_host(
            node_id, "EVENT_CATCHER", target, race, commitAfter=block.after, **kinds, **source
        )
        return node_id, race

    def _rescue(self, block: Rescue, target: str) -> Built:
        events: list[str] = []
        paths: list[Flow] = []
        for index, path in enumerate(block.handlers):
            entry, flow = self._sequence(path, target)
            events.append(self._id("HANDLER"))
            every = block.catch_all and index == len(block.handlers) - 1
            code = None if every else f"CODE_{index}"
            self._add(
                events[-1],
                "BOUNDARY_ERROR_HANDLER",
                entry,
                errorCode=code,
                commitAfter=block.after,
            )
            paths.append(flow)
        node_id = self._id("WORK")
        side = self._reminder(node_id, block.reminder)
        events += [side.name] if side else []
        self._add_handler(node_id, "work", target, boundaryEventIds=events)
        if block.catch_all:
            self.catching.add(node_id)
        host: Flow = Race(node_id, (), side)
        if block.raised is None:
            return node_id, host
        taken = block.raised % len(paths)
        self.raised[node_id] = f"CODE_{taken}"
        return node_id, Steps((host, paths[taken]))

    def _choice(self, block: Choice, target: str) -> Built:
        node_id = self._id("CHOICE")
        taken = block.taken % len(block.options)
        built = [self._sequence(option, target) for option in block.options]
        flows = [
            a_flow(entry, expectedAnswer=f"option {index}")
            for index, (entry, _) in enumerate(built)
        ]
        source: Json = {"providerType": "VARIABLE", "providerVariable": node_id}
        match block.kind:
            case "null":
                flows[taken] = a_flow(built[taken][0], handlesNull=True)
            case "default":
                flows[taken] = a_flow(built[taken][0], isDefault=True)
                self.variables[node_id] = 7.5
            case "bean":
                source = {"providerType": "BEAN", "providerBean": node_id}
                self.answers[node_id] = f"option {taken}"
                self.providers.add(f"answer_provider:{node_id}")
            case _:
                self.variables[node_id] = f"option {taken}"
        self._add(node_id, "EXCLUSIVE_GATEWAY", *flows, **source)
        return node_id, built[taken][1]

    def _loop(self, block: Loop, target: str) -> Built:
        variable = self._id("round_")
        gateway = self._id("AGAIN")
        count_id = self._handler("count", gateway, variable)
        entry, body = self._sequence(block.body, count_id)
        self._add(
            gateway,
            "EXCLUSIVE_GATEWAY",
            a_flow(target, expectedAnswer=str(block.times)),
            a_flow(entry, isDefault=True),
            providerType="VARIABLE",
            providerVariable=variable,
        )
        reset_id = self._handler("reset", entry, variable)
        rounds = Rounds(block.times, Steps((body, Pass(count_id))))
        return reset_id, Steps((Pass(reset_id), rounds))

    def _split(self, block: Split, target: str) -> Built:
        split_id, join_id = self._id("SPLIT"), self._id("JOIN")
        self._joins.append(join_id)
        built = [self._sequence(branch, join_id) for branch in block.branches]
        self._joins.pop()
        entries = [entry for entry, _ in built]
        self._add(split_id, "PARALLEL_GATEWAY", *entries, targetJoinId=join_id)
        self._add(join_id, "JOIN_GATEWAY", target, commitAfter=block.after)
        return split_id, Branches(tuple(flow for _, flow in built))

    def _meet(self, block: Meet, target: str) -> Built:
        split_id, join_id = self._id("SPLIT"), self._id("JOIN")
        keys = [f"key {join_id} {index}" for index in range(2 if block.policy else 1)]
        thrown = keys[:1] if block.policy == "ANY" else keys
        self.met.update(keys)
        self._joins.append(join_id)
        throwing = self._thrower(block, thrown, join_id)
        relayed = [f"key {join_id} relayed"] if block.relay else []
        self.met.update(relayed)
        catching = self._catcher(block, keys, self._thrower_of(block, relayed, join_id))
        branches = [throwing, catching]
        if relayed:
            branches.append(self._waiting_for(relayed, None, (join_id, Steps(()))))
        self._joins.pop()
        entries = [entry for entry, _ in branches]
        self._add(split_id, "PARALLEL_GATEWAY", *entries, targetJoinId=join_id)
        self._add(join_id, "JOIN_GATEWAY", target)
        return split_id, Branches(tuple(flow for _, flow in branches))

    def _thrower(self, block: Meet, keys: list[str], target: str) -> Built:
        following = self._thrower_of(block, keys, target)
        if block.echo:
            following = self._waiting_for([f"key of {target}", keys[0]], "ANY", following)
        entry, before = self._sequence(block.before_throw, following[0])
        return entry, Steps((before, following[1]))

    def _thrower_of(self, block: Meet, keys: list[str], target: str) -> Built:
        """Add a thrower for each key, the last of which leads to ``target``."""
        passes: list[Flow] = []
        for key in reversed(keys):
            node_id = self._id("THROW")
            source = self._key(block.kind, [key])
            properties = {"kikwiflow.keepFor": "P1000D"} if block.keeps else {}
            self._add(
                node_id,
                "EVENT_THROWER",
                target,
                commitBefore=block.commits,
                extensionProperties=properties,
                **source,
            )
            self.throwers[node_id] = key
            if block.keeps:
                self.keeping.add(node_id)
            passes.insert(0, Pass(node_id))
            target = node_id
        return target, Steps(tuple(passes))

    def _catcher(self, block: Meet, keys: list[str], following: Built) -> Built:
        waiting, flow = self._waiting_for(keys, block.policy, following)
        entry, before = self._sequence(block.before_catch, waiting)
        return entry, Steps((before, flow))

    def _waiting_for(self, keys: list[str], policy: str | None, following: Built) -> Built:
        node_id = self._id("CATCH")
        kinds: Json = {"catchType": "GROUP" if policy else "STANDALONE", "matchPolicy": policy}
        source = self._key("VARIABLE", keys, group=policy is not None)
        self._add(node_id, "EVENT_CATCHER", following[0], **kinds, **source)
        return node_id, Steps((Pass(node_id), following[1]))

    def _call(self, block: Call, target: str) -> Built:
        node_id, key = self._id("CALL"), self._id("child")
        doomed, self._doomed = self._doomed, self._doomed or block.events.deadline is not None
        child = self._define(block.body, key)
        self._doomed = doomed
        race = self._host(node_id, block.events, target)
        source: Json = {"calledElement": key, "commitAfter": block.after}
        if block.mode is not None:
            items = self._id("items_")
            self.variables[items] = [f"item {index}" for index in range(block.count)]
            source |= {
                "collectionVariable": items,
                "elementVariable": "item",
                "iterationMode": block.mode,
            }
        if block.mode == "SEQUENTIAL":
            self.sequential.add(node_id)
        self._add_host(node_id, "CALL_ACTIVITY_COORDINATOR", target, race, **source)
        number = 1 if block.mode is None else block.count
        return node_id, Children(race, key, number, child, doomed)
