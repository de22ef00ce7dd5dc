import gc
import json
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from kikwiflow_worker import __version__
from kikwiflow_worker.cli import main
from kikwiflow_worker.cli.app import cli
from kikwiflow_worker.settings import Settings
from tests.support.cli import CommandLine, restored_logging
from tests.support.definitions import PROCESS_FOLDER, a_file, a_start, a_task, an_end

__all__ = ["restored_logging"]

pytestmark = pytest.mark.usefixtures("restored_logging")

NOWHERE = "mongodb://user:s3cr3t@127.0.0.1:1/?timeoutMS=100"
COMMANDS = [
    ["validate"],
    ["deploy"],
    ["definitions", "list"],
    ["definitions", "suspend"],
    ["definitions", "resume"],
    ["definitions", "migrate"],
    ["start"],
    ["instances", "list"],
    ["instances", "show"],
    ["instances", "cancel"],
    ["instances", "set"],
    ["instances", "unset"],
    ["instances", "suspend"],
    ["instances", "resume"],
    ["instances", "migrate"],
    ["instances", "delete"],
    ["tasks", "list"],
    ["tasks", "show"],
    ["tasks", "override"],
    ["external", "list"],
    ["external", "claim"],
    ["external", "unclaim"],
    ["external", "complete"],
    ["messages", "correlate"],
    ["incidents", "list"],
    ["incidents", "show"],
    ["incidents", "retry"],
    ["bulk", "start"],
    ["bulk", "list"],
    ["bulk", "show"],
    ["bulk", "cancel"],
    ["handlers"],
    ["workers"],
    ["store", "check"],
    ["store", "reencrypt"],
    ["store", "upgrade"],
    ["events", "status"],
    ["events", "list"],
    ["events", "resend"],
    ["events", "drop"],
    ["events", "stop-relaying"],
    ["relay"],
    ["serve"],
    ["tokens", "create"],
    ["tokens", "list"],
    ["tokens", "rotate"],
    ["tokens", "revoke"],
    ["audit", "list"],
    ["verify"],
    ["doctor"],
]

PROCESSES = [["serve"], ["relay"]]
"""Commands that run until they are stopped and have no answer to print."""

command_line = CommandLine()


@pytest.fixture
def nowhere() -> Iterator[str]:
    """Return the URI of a server that does not run; the driver's sockets to it are collected at once."""
    yield NOWHERE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def a_definition(path: Path, **fields: object) -> str:
    path.write_text(json.dumps(a_file(**fields)))
    return str(path)


def an_invalid_definition(path: Path) -> str:
    path.write_text(json.dumps(a_file(a_start("NOWHERE"), a_task("TASK", "ELSEWHERE"), an_end())))
    return str(path)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(command: list[str]) -> None:
    result = command_line.run(*command, "--help")

    assert result.exit_code == 0
    assert f"Usage: kikwiflow-worker {' '.join(command)}" in result.stdout
    assert ("--json" in result.stdout) is (command not in PROCESSES)
    assert "--config FILE" in result.stdout


def test_the_help_page_lists_every_setting_and_command() -> None:
    result = command_line.run("--help")

    for name in Settings.model_fields:
        assert f"--{name.replace('_', '-')}" in result.stdout
    for command, *_ in COMMANDS:
        assert f"\n  {command} " in result.stdout


def test_the_version_is_printed() -> None:
    assert command_line.run("--version").stdout == f"kikwiflow-worker {__version__}\n"


def test_the_program_exits_with_what_its_command_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["kikwiflow-worker", "no-such-command"])
    monkeypatch.setattr("warnings.showwarning", lambda *_: None)

    with pytest.raises(SystemExit) as stopped:
        main()

    assert stopped.value.code == 2


def test_printed_settings_name_their_source_and_hide_the_password() -> None:
    result = command_line.run("--print-config", "--mongodb-uri", NOWHERE, KIKWIFLOW_CONCURRENCY="7")

    assert result.exit_code == 0
    assert "s3cr3t" not in result.output
    assert "user:***@127.0.0.1" in result.stdout
    assert "concurrency = 7  # env KIKWIFLOW_CONCURRENCY" in result.stdout


def test_an_option_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    config = tmp_path / "worker.toml"
    config.write_text('concurrency = 1\nlock_seconds = 11\ninstance_name = "from-file"\n')

    result = command_line.run(
        "--print-config", "--config", str(config), "--concurrency", "3",
        KIKWIFLOW_CONCURRENCY="2", KIKWIFLOW_LOCK_SECONDS="22",
    )  # fmt: skip

    assert "concurrency = 3  # flag" in result.stdout
    assert "lock_seconds = 22.0  # env" in result.stdout
    assert 'instance_name = "from-file"  # file' in result.stdout


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--embedded"], "kikwiflow/embedded"),
        (["--embedded", "--concurrency", "2"], "kikwiflow/embedded"),
        (["--embedded", "some/folder"], '"some/folder"'),
        (["--embedded=some/folder"], '"some/folder"'),
    ],
)
def test_embedded_takes_a_directory_or_none(arguments: list[str], shown: str) -> None:
    result = command_line.run("--print-config", *arguments)

    assert [
        shown in line for line in result.stdout.splitlines() if line.startswith("embedded")
    ] == [True]


def test_a_bare_embedded_leaves_the_command_after_it_alone() -> None:
    result = command_line.run("--embedded", "handlers", "--json")

    assert result.exit_code == 0
    assert json.loads(result.stdout)["next_cursor"] is None


def test_a_worker_without_name_and_database_says_both_and_exits_with_78() -> None:
    result = command_line.run()

    assert result.exit_code == 78
    assert result.stdout == ""
    assert result.stderr.startswith("error: a worker needs a name")
    assert "no database is given" in result.stderr
    assert "Traceback" not in result.stderr


def test_checked_settings_start_nothing() -> None:
    result = command_line.run("--check-config", "--instance-name", "w", "--mongodb-uri", NOWHERE)

    assert (result.exit_code, result.stdout) == (0, "the settings are valid\n")


def test_all_wrong_settings_are_named_at_once() -> None:
    result = command_line.run(
        "--check-config",
        "--concurrency",
        "none",
        KIKWIFLOW_CONCURENCY="3",
        KIKWIFLOW_LOG_LEVEL="loud",
    )

    assert result.exit_code == 78
    assert "flag --concurrency" in result.stderr
    assert (
        "KIKWIFLOW_CONCURENCY: is not a setting; did you mean KIKWIFLOW_CONCURRENCY?"
        in result.stderr
    )
    assert "env KIKWIFLOW_LOG_LEVEL" in result.stderr


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_command_takes_the_database_before_and_after_its_name(nowhere: str) -> None:
    before = command_line.run("--mongodb-uri", nowhere, "definitions", "list")
    after = command_line.run("definitions", "list", "--mongodb-uri", nowhere)

    assert (before.exit_code, after.exit_code) == (69, 69)
    assert before.stderr == after.stderr
    assert "s3cr3t" not in before.stderr


def test_a_command_without_a_database_exits_with_78() -> None:
    result = command_line.run("workers")

    assert result.exit_code == 78
    assert result.stderr.startswith("error: no database is given")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["instence", "list"], "Did you mean 'instances'?"),
        (["tasks", "lst"], "Did you mean 'list'?"),
        (["start", "order"], "--business-key"),
        (["start", "order", "--business-key", "A", "--var", "x"], "is not NAME=VALUE"),
        (["start", "order", "--business-key", "A", "--var", 'x={"a":'], "character 6"),
        (["start", "order", "--business-key", "A", "--var", "x=1", "--var", "x=2"], "given twice"),
        (["start", "order", "--business-key", "A", "--vars-file", "no/such"], "No such file"),
        (["start", "order", "--business-key", "A", "--priority", "12"], "priority"),
        (["tasks", "override", "ID"], "nothing to change"),
        (["tasks", "override", "ID", "--retries", "0"], "--retries"),
        (["tasks", "list", "--limit", "0"], "--limit"),
        (["tasks", "list", "--status", "LOST"], "--status"),
        (["tasks", "list", "--status", "ERROR", "--retrying"], "--retrying"),
        (["external", "list", "--assignee", "ana", "--unassigned"], "exclude each other"),
        (["instances", "set", "ID"], "nothing to change"),
        (["instances", "unset", "ID"], "NAME"),
        (["messages", "correlate"], "KEY"),
        (["store", "check", "--sample", "0"], "--sample"),
        (["incidents", "retry"], "or --all"),
        (["incidents", "retry", "ID", "--all"], "or --all"),
        (["incidents", "retry", "ID", "--yes"], "belong to --all"),
        (["instances", "set", "ID", "--var", "a=1", "--unset", "a"], "keep one"),
        (["--print-config", "workers"], "take no COMMAND"),
        (["workers", "--no-such-option"], "No such option"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_exits_with_2(arguments: list[str], message: str) -> None:
    result = command_line.run(*arguments)

    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("content", ["[1]", "{", '{"a": NaN}', "\ud800"])
def test_a_file_that_holds_no_variables_is_wrong_usage(tmp_path: Path, content: str) -> None:
    file = tmp_path / "variables.json"
    file.write_text(content, errors="surrogatepass")

    result = command_line.run("start", "order", "--business-key", "A", "--vars-file", str(file))

    assert result.exit_code == 2
    assert str(file) in result.stderr


def test_an_unexpected_error_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kikwiflow_worker.cli.handlers.load_registry", lambda _only: 1 / 0)

    result = command_line.run("handlers")

    assert result.exit_code == 1
    assert result.stderr == (
        "error: unexpected ZeroDivisionError: division by zero; run with --debug for the traceback\n"
    )


def test_debug_shows_the_traceback_without_a_password_and_exits_as_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_only: object) -> None:
        raise ZeroDivisionError(NOWHERE)

    monkeypatch.setattr("kikwiflow_worker.cli.handlers.load_registry", fail)

    result = command_line.run("handlers", "--debug")

    assert result.exit_code == 1
    assert "Traceback (most recent call last)" in result.stderr
    assert "unexpected ZeroDivisionError: mongodb://user:***@127.0.0.1:1" in result.stderr
    assert "s3cr3t" not in result.output


def test_an_interrupt_exits_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_settings: Settings) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("kikwiflow_worker.cli.app.run_worker_process", interrupt)

    result = command_line.run("--instance-name", "w", "--mongodb-uri", NOWHERE)

    assert result.exit_code == 130


def test_a_worker_gets_the_settings_of_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Settings] = []
    monkeypatch.setattr("kikwiflow_worker.cli.app.run_worker_process", given.append)

    result = command_line.run(
        "--instance-name", "w", "--mongodb-uri", NOWHERE, "--handlers", "a,b", "--handlers", "c"
    )

    assert result.exit_code == 0
    assert given[0].instance_name == "w"
    assert given[0].handlers == ("a", "b", "c")


def test_valid_files_pass() -> None:
    files = [str(path) for path in sorted(PROCESS_FOLDER.glob("*.kikwi"))]

    result = command_line.run("validate", *files)

    assert result.exit_code == 0
    assert result.stdout.endswith(f"{len(files)} files, 0 errors, 0 warnings\n")


def test_all_problems_of_all_files_are_listed_at_once(tmp_path: Path) -> None:
    valid = a_definition(tmp_path / "valid.kikwi")
    invalid = an_invalid_definition(tmp_path / "invalid.kikwi")
    missing = str(tmp_path / "missing.kikwi")

    result = command_line.run("validate", valid, invalid, missing)

    assert result.exit_code == 1
    assert f"{invalid}: error: flowNodes.START.outgoing[0].targetNodeId" in result.stdout
    assert f"{invalid}: error: flowNodes.TASK.outgoing[0].targetNodeId" in result.stdout
    assert f"{missing}: error: (file): cannot be read: No such file or directory" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("3 files, ")


def test_warnings_alone_are_no_failure(tmp_path: Path) -> None:
    file = a_definition(tmp_path / "odd.kikwi", unheardOf=1)

    result = command_line.run("validate", file)

    assert result.exit_code == 0
    assert f"{file}: warning: " in result.stdout
    assert result.stdout.endswith("1 file, 0 errors, 1 warning\n")


def test_problems_are_listed_for_programs(tmp_path: Path) -> None:
    invalid = an_invalid_definition(tmp_path / "invalid.kikwi")

    result = command_line.run("validate", invalid, "--json")

    (item,) = json.loads(result.stdout)["items"]
    assert result.exit_code == 1
    assert (item["file"], item["is_valid"]) == (invalid, False)
    assert set(item["problems"][0]) == {"severity", "path", "message", "hint"}


def test_an_invalid_file_keeps_deploy_from_connecting(tmp_path: Path) -> None:
    valid = a_definition(tmp_path / "valid.kikwi")
    invalid = an_invalid_definition(tmp_path / "invalid.kikwi")

    result = command_line.run("deploy", valid, invalid, "--mongodb-uri", NOWHERE)

    assert result.exit_code == 1
    assert "error: nothing was deployed" in result.stderr


def test_handlers_name_their_module_and_distribution() -> None:
    document = command_line.json("handlers")

    assert document["problems"] == []
    for item in document["items"]:
        assert {"name", "kind", "module", "distribution", "distribution_version"} <= set(item)


def test_handlers_that_are_not_installed_are_wrong_settings() -> None:
    result = command_line.run("handlers", "--handlers", "no-such-distribution")

    assert result.exit_code == 78
    assert "no-such-distribution" in result.stderr


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_doctor_goes_as_far_as_it_can(nowhere: str) -> None:
    result = command_line.run("doctor", "--mongodb-uri", nowhere, "--json")

    verdicts = {item["check"]: item["verdict"] for item in json.loads(result.stdout)["items"]}
    assert result.exit_code == 1
    assert (verdicts["settings"], verdicts["database"]) == ("ok", "fail")
    assert verdicts["workers"] == "skip"


def test_the_doctor_reports_wrong_settings() -> None:
    result = command_line.run("doctor", "--mongodb-uri", "http://user:s3cr3t@db")

    assert result.exit_code == 1
    assert "--mongodb-uri" in result.stdout
    assert "s3cr3t" not in result.output


def test_every_command_is_in_the_list_above() -> None:
    found = []
    for name, command in cli.commands.items():
        found += [[name, sub] for sub in getattr(command, "commands", ())] or [[name]]

    assert sorted(found) == sorted(COMMANDS)


@pytest.mark.parametrize(
    ("arguments", "environment", "value"),
    [
        ([], {}, "true"),
        (["--no-hand-on"], {}, "false"),
        (["--hand-on"], {"KIKWIFLOW_HAND_ON": "false"}, "true"),
        ([], {"KIKWIFLOW_HAND_ON": "off"}, "false"),
    ],
)
def test_what_is_on_by_default_can_be_turned_off(
    arguments: list[str], environment: dict[str, str], value: str
) -> None:
    result = command_line.run("--print-config", *arguments, **environment)

    assert f"hand_on = {value}" in result.stdout


@pytest.mark.parametrize(
    "shown",
    [
        "--traces off|provider|otlp|lines",
        "--events off|lifecycle|full",
        "--event-loop auto|asyncio|uvloop",
        "--log-level debug|info|warning|error",
    ],
)
def test_a_choice_is_shown_by_its_values(shown: str) -> None:
    assert shown in CommandLine().run("--help").output
