"""docs/prometheus-rules.yml, judged by Prometheus: it takes them, and they fire when every node is dead."""

from pathlib import Path

import pytest

from tests.metrics.promtool import needs_promtool, promtool

RULES = Path(__file__).parents[2] / "docs" / "prometheus-rules.yml"
NEXT = "cronsensus_job_next_run_timestamp_seconds"

GONE = """
rule_files: [prometheus-rules.yml]
evaluation_interval: 30s
tests:
  - interval: 30s
    input_series:
{series}
    alert_rule_test:
      - {{eval_time: 5m, alertname: {alert}, exp_alerts: []}}
      - eval_time: 20m
        alertname: {alert}
        exp_alerts: [{{exp_labels: {{severity: critical}}, exp_annotations: {{}}}}]
"""
ALIVE_TO_MINUTE_FIVE = {
    # Two nodes that are scraped until both die; a web server that goes on telling; nodes that hang.
    "CronsensusGone": [
        '{series: \'cronsensus_slots{instance="a"}\', values: "20x8"}',
        '{series: \'cronsensus_slots{instance="b"}\', values: "20x10"}',
    ],
    "CronsensusNoNode": ['{series: \'cronsensus_slots{instance="web"}\', values: "40x10 0x40"}'],
    "CronsensusNothingDecided": [f'{{series: \'{NEXT}{{job_name="tick"}}\', values: "60+30x10 360x40"}}'],
}


@needs_promtool
def test_prometheus_takes_the_rules() -> None:
    assert "SUCCESS" in promtool("check", "rules", str(RULES))


@needs_promtool
@pytest.mark.parametrize("alert", ALIVE_TO_MINUTE_FIVE)
def test_a_rule_fires_when_every_node_is_dead_and_not_before(alert: str, tmp_path: Path) -> None:
    text = RULES.read_text()
    # promtool compares annotations word for word; what is asked here is whether and when.
    (tmp_path / "prometheus-rules.yml").write_text(without_annotations(text))
    series = "\n".join(f"      - {one}" for one in ALIVE_TO_MINUTE_FIVE[alert])
    (tmp_path / "test.yml").write_text(GONE.format(series=series, alert=alert))
    assert "SUCCESS" in promtool("test", "rules", "test.yml", folder=tmp_path)


def without_annotations(text: str) -> str:
    kept = (line for line in text.splitlines() if not line.lstrip().startswith(("annotations:", "summary:", "descr")))
    return "\n".join(kept) + "\n"
