"""What watches and scales workers names only what is exported, and every check of it finds what it is for."""

from pathlib import Path

import deploy_files
import deploy_monitoring as monitoring
import pytest

KUBERNETES = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
EXPORTED = monitoring.exported_metrics()


@pytest.mark.parametrize(
    ("expression", "finding"),
    [
        ("max(kikwiflow_oldest_due_second)", "nobody exports kikwiflow_oldest_due_second"),
        ('kikwiflow_worker_slots{status="free"}', "kikwiflow_worker_slots has no label status"),
        (
            "sum by (node) (rate(kikwiflow_task_attempts_total[5m]))",
            "grouped by node, which none of its series has",
        ),
        ("up == 0", "'up == 0' names no series of ours"),
    ],
)
def test_an_expression_that_can_never_match_is_found(expression: str, finding: str) -> None:
    assert monitoring.check_expressions({"x": expression}, EXPORTED) == [f"x: {finding}"]


def test_an_expression_over_what_is_exported_passes() -> None:
    good = 'sum by (le) (rate(kikwiflow_timer_lateness_seconds_bucket{instance=~"a.*"}[5m])) > 0'

    assert monitoring.check_expressions({"x": good}, EXPORTED) == []


def test_an_alert_must_say_what_to_do() -> None:
    rule = {
        "alert": "A",
        "expr": "x",
        "labels": {"severity": "page"},
        "annotations": {"summary": "s"},
    }

    assert monitoring.check_alerts({"groups": [{"rules": [rule]}]}) == [
        "A: annotations.action is missing"
    ]


def test_workers_are_never_scaled_to_none() -> None:
    (deployment,) = deploy_files.load(KUBERNETES / "base" / "deployment.yaml")
    (scaled,) = deploy_files.load(KUBERNETES / "keda" / "scaled-object.yaml")
    scaled["spec"]["minReplicaCount"] = 0
    scaled["spec"]["scaleTargetRef"]["name"] = "other"

    assert monitoring.check_scaling(scaled, deployment) == [
        "keda: there is no Deployment other",
        "keda: minReplicaCount must be at least 1: a timer needs a worker",
    ]
