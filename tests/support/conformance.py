"""The fixtures of the Java engine, which are not part of this repository.

They are looked for in ``shared/conformance`` next to the repository. Tests that need them are skipped, with their
number, where the folder does not exist.
"""

from pathlib import Path

CONFORMANCE_FOLDER = Path(__file__).parents[3] / "shared" / "conformance"
FIXTURE_FOLDER = CONFORMANCE_FOLDER / "kikwiflow"
EXAMPLE_FOLDER = CONFORMANCE_FOLDER / "examples"

INVALID_FIXTURES = frozenset(
    {
        "boundary-catch-event-attached-to-event-catcher-invalid",
        "boundary-catch-event-executable-task",
        "call-activity-blank-called-element",
        "call-activity-element-variable-without-collection",
        "call-activity-invalid-boundary-catch-event",
        "event-catcher-boundary-non-timer-invalid",
        "event-catcher-group-static-invalid",
        "event-catcher-missing-provider-variable-invalid",
        "event-thrower-missing-provider-bean-invalid",
        "timer-task-boundary-error-handler-invalid",
    }
)
"""Fixtures that no deploy may accept, because of what the file says."""

UNRESOLVED_PROVIDER_FIXTURE = "event-thrower-unresolved-provider-bean-invalid"
"""Names a provider that nobody has: the Java engine refuses it, here its task waits for a worker that has it."""

FIXTURE_COUNT = 52


def fixture_path(key: str) -> Path:
    """Return where the fixture with this process key is, or would be."""
    return FIXTURE_FOLDER / f"{key}.json"


def fixture_keys() -> list[str]:
    """Return the keys of all fixtures, sorted; empty where the folder does not exist."""
    return sorted(path.stem for path in FIXTURE_FOLDER.glob("*.json"))


def skip_reason() -> str:
    """Return why the tests with these fixtures are skipped."""
    return f"{FIXTURE_COUNT} conformance fixtures and 2 examples not found in ../shared/conformance"
