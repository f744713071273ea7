"""Real nodes beside a simulation of them: everything that happens, happens on both sides."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip('vision_msgs', reason='no ROS or vision_msgs here: run `make setup`')

from laimr_ros.cli.main import main
from laimr_ros.evaluation import live_table6
from laimr_ros.evaluation.live_table6 import findings, LiveRun


def test_frames_go_through_real_nodes_and_the_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few seconds: every frame is answered on both sides, about as fast."""
    monkeypatch.setattr(live_table6, 'WARM_UP', 3.0)
    row = LiveRun(3.0, 1, (1, 2, 3), 8.0).run()
    assert row['lost'] == 0
    assert row['frames'] >= 10
    assert row['live_unanswered'] == row['simulated_unanswered'] == 0
    # A service alone takes 0.4 s (cloud) or more; a machine at work makes it longer, not shorter.
    assert 0.25 < row['simulated_p50_s'] < 3.0
    assert 0.25 < row['live_p50_s'] < 3.0
    assert row['start_up_s'] > 1.0
    assert row['live_replicas'] >= 2.0
    assert len(findings([row]).table) == 2


def test_nodes_that_cannot_start_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As when ROS is missing, or a parameter is refused: no trace, status 1."""
    from laimr_ros.evaluation import live_nodes
    made = live_nodes.node_parameters

    def spoilt(*args: object) -> dict[str, dict[str, object]]:
        parameters = made(*args)
        parameters['dispatcher']['lanes']['balanced']['slo'] = -1.0
        return parameters

    monkeypatch.setattr(live_nodes, 'node_parameters', spoilt)
    assert main(['experiment', 'live-table6', '--out', str(tmp_path), '--measured', '5']) == 1
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert said.startswith('laimr experiment: ') and 'slo' in said
