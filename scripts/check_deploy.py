"""Check everything in deploy/ without a network, a cluster or a container engine.

Each ``check_*`` function takes the text or the parsed documents and returns its findings, so a test can show that it
can fail. ``systemd-analyze`` and ``kubectl`` are used where they are installed; where not, the skip is printed and counted.

Usage: ``python scripts/check_deploy.py``. Exits with 1 when anything is found, else with 0.
"""

import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import yaml
from deploy_files import (
    Document,
    Findings,
    SkippedCheckError,
    load,
    parse_dockerfile,
    parse_unit,
    seconds,
)
from deploy_monitoring import (
    alert_expressions,
    check_alerts,
    check_expressions,
    check_scaling,
    exported_metrics,
    panel_expressions,
)

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
UNIT_NAME = "kikwiflow-worker@.service"
TARGET_NAME = "kikwiflow-workers.target"

GRACE_DEFAULT_S = 25
# The worker cancels handlers and releases its work after the grace; killed before that, its claims wait for their lapse.
GRACE_MARGIN_S = 5
# systemd 252 rates the unit 1.2 on its scale from 0 (closed) to 10; the limit leaves room for the scales of other versions.
EXPOSURE_LIMIT = 1.5
EXIT_CODES = frozenset({0, 1, 2, 69, 75, 78})
SETTINGS = frozenset(
    {
        "KIKWIFLOW_CONCURRENCY",
        "KIKWIFLOW_CONFIG",
        "KIKWIFLOW_GRACE_SECONDS",
        "KIKWIFLOW_HEALTH_ADDRESS",
        "KIKWIFLOW_MONGODB_DATABASE",
        "KIKWIFLOW_MONGODB_URI",
        "KIKWIFLOW_MONGODB_URI_FILE",
    }
)


# --- what several checks share ---------------------------------------------------------------------------------------


def schema_findings(document: object, schema: str) -> Findings:
    """Return where ``document`` differs from deploy/schemas/``schema``.schema.json."""
    rules = json.loads((DEPLOY / "schemas" / f"{schema}.schema.json").read_text("utf-8"))
    errors = jsonschema.Draft202012Validator(rules).iter_errors(document)
    return sorted(
        f"{schema}: at /{'/'.join(map(str, error.absolute_path))}: {error.message}"
        for error in errors
    )


def grace_findings(where: str, limit_name: str, limit_s: float, grace_s: float) -> Findings:
    """Report a kill that would come before the drain is over."""
    if limit_s >= grace_s + GRACE_MARGIN_S:
        return []
    return [
        f"{where}: {limit_name} is {limit_s:g} s, but the grace of {grace_s:g} s needs at least {grace_s + GRACE_MARGIN_S:g} s"
    ]


# --- systemd ---------------------------------------------------------------------------------------------------------


def check_unit(text: str) -> Findings:
    """Compare a unit with what the worker promises: notification, grace, exit codes, the secret as a credential."""
    unit = parse_unit(text)
    expected = {
        "Type": "notify",
        "NotifyAccess": "main",
        "KillMode": "mixed",
        "Restart": "on-failure",
        "DynamicUser": "yes",
        "NoNewPrivileges": "yes",
        "ProtectSystem": "strict",
        "StartLimitIntervalSec": "0",
    }
    findings = [
        f"unit: {name} must be {value}"
        for name, value in expected.items()
        if unit.get(name) != [value]
    ]
    findings += [
        f"unit: {name} is missing"
        for name in ("WatchdogSec", "MemoryMax", "ExecStart")
        if name not in unit
    ]
    if not any(command.endswith(" --instance-name %i") for command in unit.get("ExecStart", [])):
        findings.append("unit: ExecStart must end with --instance-name %i")
    prevented = set(" ".join(unit.get("RestartPreventExitStatus", [])).split())
    if not {"2", "78"} <= prevented:
        findings.append(
            "unit: RestartPreventExitStatus must name 2 (usage) and 78 (bad configuration)"
        )
    if {"69", "1"} & prevented:
        findings.append(
            "unit: RestartPreventExitStatus must not name 1 or 69: a restart is the cure"
        )
    if "75" not in " ".join(unit.get("SuccessExitStatus", [])).split():
        findings.append("unit: SuccessExitStatus must name 75, which follows a requested stop")
    environment = unit_environment(unit)
    if environment.get("KIKWIFLOW_MONGODB_URI_FILE") != "%d/mongodb-uri" or not any(
        credential.startswith("mongodb-uri:") for credential in unit.get("LoadCredential", [])
    ):
        findings.append(
            "unit: the URI must come from LoadCredential=mongodb-uri:... by KIKWIFLOW_MONGODB_URI_FILE=%d/mongodb-uri"
        )
    stop_s = seconds(unit.get("TimeoutStopSec", ["90"])[-1])
    grace_s = float(environment.get("KIKWIFLOW_GRACE_SECONDS", GRACE_DEFAULT_S))
    return findings + grace_findings("unit", "TimeoutStopSec", stop_s, grace_s)


def unit_environment(unit: dict[str, list[str]]) -> dict[str, str]:
    """Return what the Environment= lines of a unit set."""
    pairs = (
        word.partition("=") for line in unit.get("Environment", []) for word in shlex.split(line)
    )
    return {name: value for name, _, value in pairs}


def run_tool(*command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run an installed tool, or skip the check that needs it."""
    program = shutil.which(command[0])
    if program is None:
        raise SkippedCheckError(f"{command[0]} is not installed")
    return subprocess.run(
        [program, *command[1:]], cwd=cwd, capture_output=True, text=True, timeout=30, check=False
    )


def analyze_unit(text: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run systemd-analyze on a copy of the unit whose program exists here, beside the target it belongs to."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runnable = re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", text, flags=re.MULTILINE)
        (folder / UNIT_NAME).write_text(runnable, "utf-8")
        shutil.copy(DEPLOY / "systemd" / TARGET_NAME, folder)
        return run_tool("systemd-analyze", *options, f"./{UNIT_NAME}", cwd=folder)


def verify_unit(text: str) -> Findings:
    """Let systemd parse the unit; a warning about it counts as a finding, one about the units of this host does not."""
    done = analyze_unit(text, "verify", "--man=no", "--recursive-errors=no")
    lines = [line for line in done.stderr.splitlines() if "kikwiflow" in line]
    if done.returncode and not lines:
        lines = [f"exit {done.returncode}: {done.stderr.strip()}"]
    return [f"systemd-analyze verify: {line}" for line in lines]


def rate_unit(text: str) -> Findings:
    """Let systemd rate the hardening of the unit; finds an exposure above the limit."""
    done = analyze_unit(text, "security", "--offline=yes", "--no-pager")
    exposure = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    if exposure is None:
        return [
            f"systemd-analyze security: exit {done.returncode}, no rating: {done.stderr.strip()}"
        ]
    rated = float(exposure[1])
    return [] if rated <= EXPOSURE_LIMIT else [f"unit: exposure is {rated}, above {EXPOSURE_LIMIT}"]


# --- container image and compose -------------------------------------------------------------------------------------


def check_dockerfile(text: str) -> Findings:
    """Check the form of an image: pinned bases, the worker as process 1, a numeric user, a health check."""
    instructions = parse_dockerfile(text)
    arguments = {
        key: value.strip('"')
        for name, pair in instructions
        if name == "ARG"
        for key, _, value in [pair.partition("=")]
    }
    findings = []
    for image in (pair.split()[0] for name, pair in instructions if name == "FROM"):
        resolved = re.sub(r"\$\{(\w+)\}", lambda match: arguments.get(match[1], ""), image)
        if not re.fullmatch(r"python:3\.\d+[\w.]*-slim[\w-]*", resolved):
            findings.append(
                f"Dockerfile: base image {resolved!r} must be a slim Python image pinned by tag"
            )
    if sum(name == "FROM" for name, _ in instructions) < 2:
        findings.append("Dockerfile: needs a build stage and a run stage")
    last_stage = instructions[
        max((i for i, (name, _) in enumerate(instructions) if name == "FROM"), default=0) :
    ]
    stage = dict(last_stage)
    if not is_exec_form(stage.get("ENTRYPOINT", "")):
        findings.append(
            "Dockerfile: ENTRYPOINT must be in exec form, or a shell is process 1 and keeps SIGTERM to itself"
        )
    if not re.fullmatch(r"[1-9]\d*:[1-9]\d*", stage.get("USER", "")):
        findings.append("Dockerfile: USER of the last stage must be numeric UID:GID and not root")
    if stage.get("STOPSIGNAL", "SIGTERM") != "SIGTERM":
        findings.append("Dockerfile: STOPSIGNAL must be SIGTERM")
    _, _, probe = stage.get("HEALTHCHECK", "").partition("CMD ")
    if not is_exec_form(probe) or "/livez" not in probe:
        findings.append("Dockerfile: HEALTHCHECK must ask /livez in exec form")
    if "pip install" in text and "PIP_NO_CACHE_DIR=1" not in text:
        findings.append("Dockerfile: pip must not leave a cache in a layer (PIP_NO_CACHE_DIR=1)")
    return findings


def is_exec_form(argument: str) -> bool:
    """Tell whether an instruction's argument is a JSON array of strings."""
    try:
        words = json.loads(argument)
    except json.JSONDecodeError:
        return False
    return isinstance(words, list) and bool(words) and all(isinstance(word, str) for word in words)


def check_compose(document: Document) -> Findings:
    """Check the compose file: schema, one replica-set name throughout, distinct instances, grace."""
    findings = schema_findings(document, "compose")
    if findings:
        return findings
    services = document["services"]
    command = services["mongodb"]["command"]
    replica_set = command[command.index("--replSet") + 1]
    if f'_id: "{replica_set}"' not in services["mongodb"]["healthcheck"]["test"][-1]:
        findings.append(
            f"compose: the health check of mongodb does not initiate the replica set {replica_set!r}"
        )
    workers = {name: service for name, service in services.items() if name.startswith("worker-")}
    instances = [service["command"][1] for service in workers.values()]
    if len(set(instances)) != len(instances):
        findings.append(f"compose: instance names are not distinct: {instances}")
    for name, service in workers.items():
        grace_s = float(service["environment"].get("KIKWIFLOW_GRACE_SECONDS", GRACE_DEFAULT_S))
        stop_s = seconds(service["stop_grace_period"])
        findings += grace_findings(f"compose: {name}", "stop_grace_period", stop_s, grace_s)
    return findings


def check_compose_uri(uri: str, document: Document) -> Findings:
    """The example URI must name the replica set that compose starts, for transactions need one."""
    command = document["services"]["mongodb"]["command"]
    replica_set = command[command.index("--replSet") + 1]
    return (
        []
        if uri.strip().endswith(f"replicaSet={replica_set}")
        else [f"compose: the URI does not name replicaSet={replica_set}"]
    )


# --- Kubernetes ------------------------------------------------------------------------------------------------------

KINDS = {
    "Deployment": "deployment",
    "PodDisruptionBudget": "pod-disruption-budget",
    "ServiceAccount": "service-account",
}


def check_manifests(documents: Iterable[Document], where: str) -> Findings:
    """Check a set of manifests: schemas, then what must agree between and within them."""
    by_kind = {str(document.get("kind")): document for document in documents}
    if by_kind.keys() != KINDS.keys():
        return [f"{where}: has the kinds {sorted(by_kind)}, expected {sorted(KINDS)}"]
    findings = [
        finding
        for kind, schema in KINDS.items()
        for finding in schema_findings(by_kind[kind], schema)
    ]
    if not findings:
        budget, account = by_kind["PodDisruptionBudget"], by_kind["ServiceAccount"]
        findings = list(manifest_disagreements(by_kind["Deployment"], budget, account))
    return [f"{where}: {finding}" for finding in findings]


def manifest_disagreements(
    deployment: Document, budget: Document, account: Document
) -> Iterator[str]:
    """Yield what does not agree between manifests that are valid one by one."""
    selector = deployment["spec"]["selector"]["matchLabels"]
    template = deployment["spec"]["template"]
    pod, container = template["spec"], template["spec"]["containers"][0]
    if not selector.items() <= template["metadata"]["labels"].items():
        yield "Deployment: the selector does not match the labels of its pods"
    if budget["spec"]["selector"]["matchLabels"] != selector:
        yield "PodDisruptionBudget: the selector is not the Deployment's"
    if pod["serviceAccountName"] != account["metadata"]["name"]:
        yield f"Deployment: service account {pod['serviceAccountName']!r} is not among the manifests"
    environment = {entry["name"]: entry.get("value", "") for entry in container["env"]}
    grace_s = float(environment.get("KIKWIFLOW_GRACE_SECONDS", GRACE_DEFAULT_S))
    yield from grace_findings(
        "Deployment", "terminationGracePeriodSeconds", pod["terminationGracePeriodSeconds"], grace_s
    )
    port = str(
        next(
            entry["containerPort"] for entry in container["ports"] if entry.get("name") == "health"
        )
    )
    health_port = environment.get("KIKWIFLOW_HEALTH_ADDRESS", "").rpartition(":")[2]
    if not port == health_port == template["metadata"]["annotations"]["prometheus.io/port"]:
        yield "Deployment: container port, KIKWIFLOW_HEALTH_ADDRESS and prometheus.io/port are not the same"
    if "KIKWIFLOW_MONGODB_URI" in environment:
        yield "Deployment: the URI must not be in the environment; mount it and set KIKWIFLOW_MONGODB_URI_FILE"
    secrets = {volume["name"] for volume in pod["volumes"] if "secret" in volume}
    folders = [
        mount["mountPath"]
        for mount in container["volumeMounts"]
        if mount["name"] in secrets and mount.get("readOnly")
    ]
    if environment.get("KIKWIFLOW_MONGODB_URI_FILE", "").rpartition("/")[0] not in folders:
        yield "Deployment: KIKWIFLOW_MONGODB_URI_FILE is not in a read-only mount of a secret"


def check_secret(secret: Document, deployment: Document) -> Findings:
    """The example must be a placeholder with the name and key that the Deployment mounts."""
    findings = schema_findings(secret, "secret")
    mounted = [
        volume["secret"]
        for volume in deployment["spec"]["template"]["spec"]["volumes"]
        if "secret" in volume
    ]
    names = [entry["secretName"] for entry in mounted]
    if not findings and secret["metadata"]["name"] not in names:
        findings.append(
            f"secret: {secret['metadata']['name']!r} is not what the Deployment mounts: {names}"
        )
    return findings


def render(folder: Path) -> list[Document]:
    """Render a kustomization, without contacting a cluster."""
    done = run_tool("kubectl", "kustomize", str(folder))
    if done.returncode or done.stderr.strip():
        raise ValueError(f"kubectl kustomize: exit {done.returncode}: {done.stderr.strip()}")
    return [document for document in yaml.safe_load_all(done.stdout) if document]


# --- across files ----------------------------------------------------------------------------------------------------


def check_names(texts: dict[str, str]) -> Findings:
    """Report settings that the worker does not have; it refuses to start with one."""
    return [
        f"{name}: {setting} is not a setting of the worker"
        for name, text in texts.items()
        for setting in sorted(set(re.findall(r"\bKIKWIFLOW_[A-Z_]*[A-Z]\b", text)) - SETTINGS)
    ]


def check_agreement(unit: str, dockerfile: str, deployment: Document) -> Findings:
    """The three ways to run a worker must use the same program, user and port."""
    image = dict(parse_dockerfile(dockerfile))
    pod = deployment["spec"]["template"]["spec"]
    findings = []
    program = parse_unit(unit)["ExecStart"][0].split()[0]
    if json.loads(image["ENTRYPOINT"]) != [program]:
        findings.append(
            f"ENTRYPOINT of the image and ExecStart of the unit differ: {image['ENTRYPOINT']}, {program}"
        )
    user = f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}"
    if image["USER"] != user:
        findings.append(f"USER of the image is {image['USER']}, the Deployment runs as {user}")
    port = str(pod["containers"][0]["ports"][0]["containerPort"])
    if image["EXPOSE"] != port:
        findings.append(f"the image exposes {image['EXPOSE']}, the Deployment {port}")
    return findings


def check_exit_codes(readme: str, errors: str) -> Findings:
    """The table of exit codes must have all of them, also those that errors.py sets."""
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", readme, flags=re.MULTILINE)}
    raised = {
        int(code) for code in re.findall(r"^\s+exit_code\b.*= (\d+)$", errors, flags=re.MULTILINE)
    }
    missing = sorted((EXIT_CODES | raised) - documented)
    return [f"README: exit code {code} is not in the table" for code in missing]


# --- running ---------------------------------------------------------------------------------------------------------


def all_checks() -> dict[str, Callable[[], Findings]]:
    """Return every check of the committed files by its name, in the order in which they run."""
    unit = (DEPLOY / "systemd" / UNIT_NAME).read_text("utf-8")
    dockerfile = (DEPLOY / "docker" / "Dockerfile").read_text("utf-8")
    (compose,) = load(DEPLOY / "compose" / "compose.yaml")
    base, overlay = (
        DEPLOY / "kubernetes" / "base",
        DEPLOY / "kubernetes" / "overlays" / "production",
    )
    (deployment,) = load(base / "deployment.yaml")
    (secret,) = load(base / "secret.example.yaml")
    (kustomization,) = load(base / "kustomization.yaml")
    manifests = [document for name in kustomization["resources"] for document in load(base / name)]
    texts = {
        str(path.relative_to(DEPLOY)): path.read_text("utf-8")
        for path in sorted(DEPLOY.rglob("*"))
        if path.is_file()
    }
    (scaled,) = load(DEPLOY / "kubernetes" / "keda" / "scaled-object.yaml")
    (alerts,) = load(DEPLOY / "prometheus" / "alerts.yaml")
    dashboard = json.loads((DEPLOY / "grafana" / "kikwiflow.json").read_text("utf-8"))
    errors = (ROOT / "kikwiflow_worker" / "errors.py").read_text("utf-8")
    uri = (DEPLOY / "compose" / "mongodb-uri.example").read_text("utf-8")
    return {
        "systemd: unit": partial(check_unit, unit),
        "systemd: systemd-analyze verify": partial(verify_unit, unit),
        "systemd: systemd-analyze security": partial(rate_unit, unit),
        "docker: Dockerfile": partial(check_dockerfile, dockerfile),
        "compose: compose.yaml": partial(check_compose, compose),
        "compose: example URI": partial(check_compose_uri, uri, compose),
        "kubernetes: base files": partial(check_manifests, manifests, "base"),
        "kubernetes: example secret": partial(check_secret, secret, deployment),
        "kubernetes: kustomize base": lambda: check_manifests(render(base), "kustomize base"),
        "kubernetes: kustomize production": lambda: check_manifests(
            render(overlay), "kustomize production"
        ),
        "kubernetes: KEDA": partial(check_scaling, scaled, deployment),
        "prometheus: alerts": lambda: (
            check_alerts(alerts) + check_expressions(alert_expressions(alerts), exported_metrics())
        ),
        "grafana: dashboard": lambda: check_expressions(
            panel_expressions(dashboard), exported_metrics()
        ),
        "all: names of settings": partial(check_names, texts),
        "all: image, unit and Deployment agree": partial(
            check_agreement, unit, dockerfile, deployment
        ),
        "all: exit codes": partial(check_exit_codes, texts["README.md"], errors),
    }


def run(checks: dict[str, Callable[[], Findings]]) -> int:
    """Run the checks, print their results and return the exit status."""
    passed = failed = skipped = 0
    for name, check in checks.items():
        try:
            findings = check()
        except SkippedCheckError as reason:
            skipped += 1
            print(f"SKIP {name}: {reason}")
            continue
        except ValueError as error:
            findings = [str(error)]
        passed, failed = passed + (not findings), failed + bool(findings)
        print(f"{'FAIL' if findings else 'ok  '} {name}")
        for finding in findings:
            print(f"       {finding}")
    print(f"deploy: {passed} checks passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(run(all_checks()))
