"""Checks what people and senders of messages were promised against what the database holds."""

from collections.abc import Iterator
from dataclasses import dataclass

from pymongo.database import Database

from tests.chaos.load_shape import Json
from tests.chaos.verify_instances import Instances
from tests.chaos.verify_ledger import Promises
from tests.chaos.verify_report import Kind, Violation

_DELIVERED = "DELIVERED"


@dataclass(slots=True)
class People:
    """The promises of one run.

    Attributes:
        completed: How many external tasks were completed, and messages delivered.
    """

    database: Database[Json]
    promises: Promises
    instances: Instances
    completed: int = 0

    def violations(self) -> Iterator[Violation]:
        """Yield what is not as it was promised."""
        yield from self._completions()
        yield from self._messages()
        yield from self._incidents()

    def _completions(self) -> Iterator[Violation]:
        recorded = {
            record["_id"]: str(record.get("completedBy"))
            for record in self.database.completed_external_tasks.find()
        }
        self.completed += len(recorded)
        for task, people in self.promises.completers.items():
            instance, node = self.promises.where[task]
            at = f"external task {task} at node {node} of instance {instance}"
            done, by = self.promises.done.get(task, []), recorded.get(task)
            if len(done) > 1:
                yield Violation(Kind.DOUBLED, f"{at} was completed by {' and by '.join(done)}")
            if done and by is None:
                yield Violation(Kind.LOST, f"{at} was completed by {done[0]}: there is no record")
            if by is None:
                continue
            if by not in people or (done and by not in done):
                yield Violation(
                    Kind.OTHER, f"{at} was completed by {by}; {', '.join(done or people)} did it"
                )
            kept = self.instances.completers.get((instance, node))
            if kept != by:
                yield Violation(Kind.OTHER, f"{at} was completed by {by}; its variable says {kept}")

    def _messages(self) -> Iterator[Violation]:
        stored: dict[str, str] = {}
        for message in self.database.messages.find({}, {"messageId": 1, "status": 1}):
            stored[message["messageId"]] = message["status"]
        self.completed += sum(status == _DELIVERED for status in stored.values())
        for message in sorted(self.promises.delivered - stored.keys()):
            yield Violation(Kind.LOST, f"message {message!r} was delivered: there is no record")
        for message in sorted(self.promises.messages):
            count = self.instances.received[message]
            expected = int(stored.get(message) == _DELIVERED)
            if count > expected:
                yield Violation(
                    Kind.DOUBLED,
                    f"message {message!r} is {stored.get(message, 'not stored')}; {count} instances took it",
                )
            elif count < expected:
                yield Violation(
                    Kind.LOST, f"message {message!r} was delivered, and no instance took it"
                )
        for message in sorted(self.instances.received.keys() - self.promises.messages):
            yield Violation(Kind.OTHER, f"message {message!r} was taken, and nobody sent it")

    def _incidents(self) -> Iterator[Violation]:
        for incident, (kind, words) in sorted(self.promises.incidents.items()):
            if kind != "WORKER_LOST":
                yield Violation(Kind.OTHER, f"incident {incident}: {kind}: {words}")
