"""Checks of what watches and scales workers: alert rules, the dashboard and KEDA, against the names that the code exports."""

import re

from deploy_files import Document, Findings
from prometheus_client import CollectorRegistry

from kikwiflow_worker.management.request_log import RequestMetrics
from kikwiflow_worker.telemetry import Metrics


def exported_metrics() -> dict[str, frozenset[str]]:
    """Return the names of all series that workers and management servers export, with their labels."""
    registry = CollectorRegistry()
    Metrics(registry, version="", instance="")
    RequestMetrics(registry)
    # The registry has no public list of the names in it.
    collectors = registry._names_to_collectors
    added = {"instance", "job", "le"}
    return {name: frozenset({*each._labelnames, *added}) for name, each in collectors.items()}


def check_expressions(expressions: dict[str, str], exported: dict[str, frozenset[str]]) -> Findings:
    """Report names of series and labels that nobody exports, in expressions by where they are."""
    findings = []
    for where, expression in expressions.items():
        known = frozenset[str]()
        for name, selector in re.findall(r"(kikwiflow_\w+)\s*(\{[^}]*\})?", expression):
            if name not in exported:
                findings.append(f"{where}: nobody exports {name}")
                continue
            known |= exported[name]
            findings += [
                f"{where}: {name} has no label {label}"
                for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector)
                if label not in exported[name]
            ]
        if "kikwiflow_" not in expression:
            findings.append(f"{where}: {expression!r} names no series of ours")
        for labels in re.findall(r"by\s*\(([^)]*)\)", expression):
            for label in filter(None, re.split(r"[\s,]+", labels)):
                if known and label not in known:
                    findings.append(f"{where}: grouped by {label}, which none of its series has")
    return findings


def alert_expressions(document: Document) -> dict[str, str]:
    """Return the expressions of alert rules by the names of their alerts."""
    return {rule["alert"]: rule["expr"] for group in document["groups"] for rule in group["rules"]}


def check_alerts(document: Document) -> Findings:
    """Report alerts that do not say how grave they are, what is the matter and what to do."""
    return [
        f"{rule['alert']}: {section}.{field} is missing"
        for group in document["groups"]
        for rule in group["rules"]
        for section, field in (
            ("labels", "severity"),
            ("annotations", "summary"),
            ("annotations", "action"),
        )
        if not rule.get(section, {}).get(field)
    ]


def panel_expressions(document: Document) -> dict[str, str]:
    """Return the expressions of a Grafana dashboard by the titles of their panels."""
    return {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in document["panels"]
        for target in panel.get("targets", ())
    }


def check_scaling(document: Document, deployment: Document) -> Findings:
    """Compare a ScaledObject with the Deployment that it scales, and its queries with what is exported."""
    findings = []
    target = document["spec"]["scaleTargetRef"]["name"]
    if target != deployment["metadata"]["name"]:
        findings.append(f"keda: there is no Deployment {target}")
    if document["spec"]["minReplicaCount"] < 1:
        findings.append("keda: minReplicaCount must be at least 1: a timer needs a worker")
    queries = {
        f"keda trigger {number}": trigger["metadata"]["query"]
        for number, trigger in enumerate(document["spec"]["triggers"])
    }
    return findings + check_expressions(queries, exported_metrics())
