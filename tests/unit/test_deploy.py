"""The files in deploy/ pass their checks, and every check finds the violation it is for."""

import copy
import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import check_deploy as deploy
import deploy_files
import pytest

ROOT = Path(__file__).resolve().parents[2]
BASE = ROOT / "deploy" / "kubernetes" / "base"
Document = dict


CHECKS = deploy.all_checks()
UNIT = (ROOT / "deploy" / "systemd" / "kikwiflow-worker@.service").read_text("utf-8")
DOCKERFILE = (ROOT / "deploy" / "docker" / "Dockerfile").read_text("utf-8")


@pytest.fixture
def deployment() -> Document:
    return deploy_files.load(BASE / "deployment.yaml")[0]


@pytest.fixture
def budget() -> Document:
    return deploy_files.load(BASE / "pod-disruption-budget.yaml")[0]


@pytest.fixture
def account() -> Document:
    return deploy_files.load(BASE / "service-account.yaml")[0]


@pytest.fixture
def compose() -> Document:
    return deploy_files.load(ROOT / "deploy" / "compose" / "compose.yaml")[0]


def pod(deployment: Document) -> Document:
    return deployment["spec"]["template"]["spec"]


def container(deployment: Document) -> Document:
    return pod(deployment)["containers"][0]


def set_variable(deployment: Document, name: str, value: str) -> None:
    next(entry for entry in container(deployment)["env"] if entry["name"] == name)["value"] = value


@pytest.mark.field_case("S-26")
@pytest.mark.parametrize("name", CHECKS)
def test_committed_files_pass(name: str) -> None:
    try:
        findings = CHECKS[name]()
    except deploy_files.SkippedCheckError as reason:
        pytest.skip(str(reason))

    assert findings == []


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        ("TimeoutStopSec=35", "TimeoutStopSec=25", "TimeoutStopSec is 25 s"),
        (
            "TimeoutStopSec=35\n",
            "TimeoutStopSec=1min\nEnvironment=KIKWIFLOW_GRACE_SECONDS=58\n",
            "TimeoutStopSec is 60 s",
        ),
        ("Type=notify", "Type=simple", "Type must be notify"),
        ("NotifyAccess=main", "NotifyAccess=all", "NotifyAccess must be main"),
        ("KillMode=mixed\n", "", "KillMode must be mixed"),
        ("WatchdogSec=30\n", "", "WatchdogSec is missing"),
        ("--instance-name %i", "--instance-name one", "ExecStart must end with"),
        (
            "RestartPreventExitStatus=2 78",
            "RestartPreventExitStatus=2",
            "must name 2 (usage) and 78",
        ),
        (
            "RestartPreventExitStatus=2 78",
            "RestartPreventExitStatus=2 69 78",
            "must not name 1 or 69",
        ),
        ("SuccessExitStatus=75\n", "", "SuccessExitStatus must name 75"),
        ("LoadCredential=mongodb-uri:/etc/kikwiflow/mongodb-uri\n", "", "LoadCredential"),
        ("DynamicUser=yes\n", "", "DynamicUser must be yes"),
    ],
)
def test_faulty_unit_is_reported(old: str, new: str, finding: str) -> None:
    assert old in UNIT

    findings = deploy.check_unit(UNIT.replace(old, new))

    assert finding in "\n".join(findings)


@pytest.mark.parametrize(
    ("check", "old", "new", "finding"),
    [
        (deploy.verify_unit, "KillMode=mixed", "KillMode=mixd", "Failed to parse kill mode"),
        (deploy.verify_unit, "RestartSec=5", "RestartAfter=5", "RestartAfter"),
        (
            deploy.rate_unit,
            "SystemCallFilter=@system-service\nSystemCallFilter=~@privileged @resources\n",
            "",
            "exposure is",
        ),
    ],
)
def test_systemd_finds_fault_in_unit(
    check: Callable[[str], list[str]], old: str, new: str, finding: str
) -> None:
    assert old in UNIT

    try:
        findings = check(UNIT.replace(old, new))
    except deploy_files.SkippedCheckError as reason:
        pytest.skip(str(reason))

    assert finding in "\n".join(findings)


@pytest.mark.field_case("S-26")
@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        (
            '["/opt/kikwiflow/venv/bin/kikwiflow-worker"]',
            "kikwiflow-worker",
            "ENTRYPOINT must be in exec form",
        ),
        ("USER 10001:10001", "USER kikwiflow", "USER of the last stage must be numeric"),
        ("USER 10001:10001", "USER 0:0", "USER of the last stage must be numeric"),
        ("USER 10001:10001\n", "", "USER of the last stage must be numeric"),
        ("python:3.11-slim-bookworm", "python", "base image 'python'"),
        ("STOPSIGNAL SIGTERM", "STOPSIGNAL SIGKILL", "STOPSIGNAL must be SIGTERM"),
        ("'/livez'", "'/readyz'", "HEALTHCHECK must ask /livez"),
        ("PIP_NO_CACHE_DIR=1", "PIP_NO_INPUT=1", "pip must not leave a cache"),
    ],
)
def test_faulty_dockerfile_is_reported(old: str, new: str, finding: str) -> None:
    assert old in DOCKERFILE

    findings = deploy.check_dockerfile(DOCKERFILE.replace(old, new))

    assert finding in "\n".join(findings)


def no_probe(name: str) -> Callable[[Document], object]:
    return lambda deployment: container(deployment).pop(name)


@pytest.mark.parametrize(
    ("spoil", "finding"),
    [
        (
            lambda d: pod(d).update(terminationGracePeriodSeconds=29),
            "terminationGracePeriodSeconds is 29 s",
        ),
        (
            lambda d: set_variable(d, "KIKWIFLOW_GRACE_SECONDS", "31"),
            "the grace of 31 s needs at least 36 s",
        ),
        (no_probe("startupProbe"), "'startupProbe' is a required property"),
        (no_probe("readinessProbe"), "'readinessProbe' is a required property"),
        (
            lambda d: container(d)["livenessProbe"]["httpGet"].update(path="/readyz"),
            "livenessProbe/httpGet",
        ),
        (
            lambda d: pod(d)["securityContext"].update(runAsNonRoot=False),
            "securityContext/runAsNonRoot",
        ),
        (lambda d: pod(d)["securityContext"].update(runAsUser=0), "securityContext/runAsUser"),
        (
            lambda d: container(d)["securityContext"].pop("capabilities"),
            "'capabilities' is a required property",
        ),
        (lambda d: container(d).update(image="kikwiflow-worker:latest"), "containers/0/image"),
        (lambda d: container(d).update(image="kikwiflow-worker"), "containers/0/image"),
        (lambda d: pod(d).pop("enableServiceLinks"), "'enableServiceLinks' is a required property"),
        (
            lambda d: pod(d).update(automountServiceAccountToken=True),
            "automountServiceAccountToken",
        ),
        (lambda d: container(d)["env"].pop(0), "containers/0/env"),
        (lambda d: container(d)["volumeMounts"].pop(0), "not in a read-only mount of a secret"),
        (lambda d: set_variable(d, "KIKWIFLOW_HEALTH_ADDRESS", "0.0.0.0:80"), "are not the same"),
        (
            lambda d: d["spec"]["template"]["metadata"].update(labels={"a": "b"}),
            "selector does not match",
        ),
        (
            lambda d: container(d)["env"].append(
                {"name": "KIKWIFLOW_MONGODB_URI", "value": "mongodb://x"}
            ),
            "the URI must not be in the environment",
        ),
    ],
)
def test_faulty_deployment_is_reported(
    deployment: Document,
    budget: Document,
    account: Document,
    spoil: Callable[[Document], object],
    finding: str,
) -> None:
    spoil(deployment)

    findings = deploy.check_manifests([deployment, budget, account], "seeded")

    assert finding in "\n".join(findings)


def test_disruption_budget_for_other_pods_is_reported(
    deployment: Document, budget: Document, account: Document
) -> None:
    budget["spec"]["selector"]["matchLabels"] = {"app.kubernetes.io/name": "other"}

    findings = deploy.check_manifests([deployment, budget, account], "seeded")

    assert findings == ["seeded: PodDisruptionBudget: the selector is not the Deployment's"]


def test_missing_manifest_is_reported(deployment: Document, account: Document) -> None:
    findings = deploy.check_manifests([deployment, account], "seeded")

    assert "expected ['Deployment', 'PodDisruptionBudget', 'ServiceAccount']" in findings[0]


def test_service_account_with_token_is_reported(
    deployment: Document, budget: Document, account: Document
) -> None:
    account["automountServiceAccountToken"] = True

    findings = deploy.check_manifests([deployment, budget, account], "seeded")

    assert findings == [
        "seeded: service-account: at /automountServiceAccountToken: False was expected"
    ]


@pytest.mark.parametrize(
    ("name", "uri", "finding"),
    [
        ("kikwiflow-mongodb", "mongodb://admin:hunter2@db/?replicaSet=rs0", "does not match"),
        (
            "other",
            "mongodb://USER:PASSWORD@db/?replicaSet=rs0",
            "is not what the Deployment mounts",
        ),
    ],
)
def test_faulty_example_secret_is_reported(
    deployment: Document, name: str, uri: str, finding: str
) -> None:
    (secret,) = deploy_files.load(BASE / "secret.example.yaml")
    secret["metadata"]["name"], secret["stringData"]["mongodb-uri"] = name, uri

    findings = deploy.check_secret(secret, deployment)

    assert finding in "\n".join(findings)


def test_broken_kustomization_is_reported(tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text("resources: [missing.yaml]\n", "utf-8")

    def rendered() -> list[str]:
        return deploy.check_manifests(deploy.render(tmp_path), "seeded")

    try:
        with pytest.raises(ValueError, match=r"kubectl kustomize: exit 1: .*missing\.yaml"):
            rendered()
    except deploy_files.SkippedCheckError as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize(
    ("spoil", "finding"),
    [
        (lambda s: s["mongodb"].update(command=["--bind_ip_all"]), "services/mongodb/command"),
        (
            lambda s: s["mongodb"]["command"].__setitem__(1, "rs1"),
            "does not initiate the replica set 'rs1'",
        ),
        (
            lambda s: s["mongodb"].update(ports=["27017:27017"]),
            "should not be valid under {'required': ['ports']}",
        ),
        (
            lambda s: s["worker-2"].pop("stop_grace_period"),
            "'stop_grace_period' is a required property",
        ),
        (
            lambda s: s["worker-2"].update(stop_grace_period="10s"),
            "worker-2: stop_grace_period is 10 s",
        ),
        (
            lambda s: s["worker-2"].update(command=["--instance-name", "worker-1"]),
            "instance names are not distinct",
        ),
        (
            lambda s: s["worker-1"].update(
                depends_on={"mongodb": {"condition": "service_started"}}
            ),
            "depends_on/mongodb",
        ),
    ],
)
def test_faulty_compose_file_is_reported(
    compose: Document, spoil: Callable[[Document], object], finding: str
) -> None:
    # The workers share their anchor's mappings; a deep copy of each keeps a change in one out of the other.
    compose["services"] = {
        name: copy.deepcopy(service) for name, service in compose["services"].items()
    }
    spoil(compose["services"])

    findings = deploy.check_compose(compose)

    assert finding in "\n".join(findings)


def test_example_uri_without_replica_set_is_reported(compose: Document) -> None:
    findings = deploy.check_compose_uri("mongodb://mongodb:27017/\n", compose)

    assert findings == ["compose: the URI does not name replicaSet=rs0"]


def test_unknown_setting_is_reported() -> None:
    findings = deploy.check_names({"a.env": "KIKWIFLOW_CONCURENCY=4 KIKWIFLOW_CONCURRENCY=4"})

    assert findings == ["a.env: KIKWIFLOW_CONCURENCY is not a setting of the worker"]


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        (
            "/opt/kikwiflow/venv/bin/kikwiflow-worker",
            "/usr/bin/kikwiflow-worker",
            "ENTRYPOINT of the image and ExecStart",
        ),
        ("USER 10001:10001", "USER 20002:20002", "USER of the image is 20002:20002"),
        ("EXPOSE 9464", "EXPOSE 8080", "the image exposes 8080"),
    ],
)
def test_disagreement_with_image_is_reported(
    deployment: Document, old: str, new: str, finding: str
) -> None:
    findings = deploy.check_agreement(UNIT, DOCKERFILE.replace(old, new), deployment)

    assert finding in "\n".join(findings)


def test_undocumented_exit_codes_are_reported() -> None:
    table = "| 0 | a |\n| 1 | b |\n| 2 | c |\n| 69 | d |\n| 75 | e |\n"

    findings = deploy.check_exit_codes(table, "    exit_code = 64\n")

    assert findings == [
        "README: exit code 64 is not in the table",
        "README: exit code 78 is not in the table",
    ]


def test_missing_tool_skips_its_check() -> None:
    with pytest.raises(deploy_files.SkippedCheckError, match="no-such-tool is not installed"):
        deploy.run_tool("no-such-tool")


def test_summary_counts_and_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    def skipped() -> list[str]:
        raise deploy_files.SkippedCheckError("no tool")

    status = deploy.run({"good": list, "bad": lambda: ["broken"], "absent": skipped})

    printed = capsys.readouterr().out
    assert status == 1
    assert "FAIL bad\n       broken\nSKIP absent: no tool\n" in printed
    assert printed.endswith("deploy: 1 checks passed, 1 failed, 1 skipped\n")


def test_skips_alone_do_not_fail(capsys: pytest.CaptureFixture[str]) -> None:
    def skipped() -> list[str]:
        raise deploy_files.SkippedCheckError("no tool")

    status = deploy.run({"absent": skipped})

    assert status == 0
    assert "0 failed, 1 skipped" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "expected"), [("35", 35), ("35s", 35), ("1min 30s", 90), ("1m30s", 90), (70, 70)]
)
def test_length_of_time_is_read(text: str | int, expected: float) -> None:
    assert deploy_files.seconds(text) == expected


def test_unreadable_length_of_time_is_refused() -> None:
    with pytest.raises(ValueError, match="not a length of time"):
        deploy_files.seconds("soon")


@pytest.fixture
def health_port() -> Iterator[int]:
    class Health(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/livez" else 404)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Health) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def run_health_check(port: int, path: str = "/livez") -> int:
    (argument,) = (
        arguments
        for name, arguments in deploy_files.parse_dockerfile(DOCKERFILE)
        if name == "HEALTHCHECK"
    )
    command = json.loads(argument.partition("CMD ")[2].replace("/livez", path))
    environment = os.environ | {"KIKWIFLOW_HEALTH_ADDRESS": f"0.0.0.0:{port}"}
    done = subprocess.run(
        [sys.executable, *command[1:]],
        env=environment,
        capture_output=True,
        timeout=20,
        check=False,
    )
    return done.returncode


def test_health_check_of_image_passes_for_live_worker(health_port: int) -> None:
    assert run_health_check(health_port) == 0


def test_health_check_of_image_fails_for_other_status(health_port: int) -> None:
    assert run_health_check(health_port, path="/elsewhere") == 1
