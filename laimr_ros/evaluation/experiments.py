"""The experiments there are, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from laimr_ros.evaluation import (
    ablation,
    crossed,
    curves,
    decision_time,
    discipline,
    fig2,
    fig3,
    fig4,
    frozen,
    gamma,
    holdout,
    live_table6,
    margin,
    scale,
    spread,
    table6,
    tuning,
)
from laimr_ros.evaluation.findings import Findings
from laimr_ros.evaluation.runs import Row, Run


@dataclass(frozen=True)
class Experiment:
    """
    One experiment.

    :param tasks: from seeds and seconds to measure (None for the scenario's own) to its runs.
    :param findings: from the rows of its runs to what they say.
    :param alone: whether its runs must not share the machine, because they measure time.
    """

    title: str
    tasks: Callable[[Sequence[int], float | None], Sequence[Run]]
    findings: Callable[[Sequence[Row]], Findings]
    alone: bool = False


EXPERIMENTS = {
    'table6-p99': Experiment(
        'P99 at 1 to 6 frames per second, by policy (Table VI)', table6.tasks, table6.findings),
    'ablation': Experiment(
        'Late frames at equal cost, against rules without a latency model', ablation.tasks,
        ablation.findings),
    'spread': Experiment(
        'How P99 differs from run to run, by policy', spread.tasks,
        spread.findings),
    'fig2-calibration': Experiment(
        'The power law fitted to measured service times (Fig. 2)', fig2.tasks, fig2.findings),
    'fig3-latency-growth': Experiment(
        'Latency over the arrival rate at fixed replicas, and its prediction (Fig. 3)', fig3.tasks,
        fig3.findings),
    'discipline': Experiment(
        'One queue or a queue a replica: formulas, simulation, dispatcher (R7)', discipline.tasks,
        discipline.findings),
    'holdout': Experiment(
        'What a calibration says of frames it has not seen (R5)', holdout.tasks,
        holdout.findings),
    'fig4-microservice': Experiment(
        'A pool a model against replicas that hold all models (Fig. 4)', fig4.tasks,
        fig4.findings),
    'crossed': Experiment(
        'What order of pools, routing and scaling are worth apart', crossed.tasks,
        crossed.findings),
    'live-table6': Experiment(
        'The scenario `paper` with real nodes, beside the same simulated', live_table6.tasks,
        live_table6.findings, alone=True),
    'cost-curves': Experiment(
        'P99 against cost, a curve a policy along its main setting', curves.tasks,
        curves.findings),
    'frozen': Experiment(
        'Parameters made on one trace, unchanged on all others (R6)', frozen.tasks,
        frozen.findings),
    'gamma-sensitivity': Experiment(
        'What a wrong exponent does to latency and cost (R2)', gamma.tasks, gamma.findings),
    'margin': Experiment(
        'Whether margin and windows that were tuned by hand matter (R6)', margin.tasks,
        margin.findings),
    'tuning': Experiment(
        'Settings of every policy, by the same search on other seeds', tuning.tasks,
        tuning.findings),
    'decision-time': Experiment(
        'How long deciding takes, routing and scaling apart', decision_time.tasks,
        decision_time.findings, alone=True),
    'scale': Experiment(
        'What the controller costs from 10 to 10,000 robots', scale.tasks, scale.findings,
        alone=True),
}
