"""Write down a calibration: parameters for the dispatcher, a report for people, raw records."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
import html
import json
from pathlib import Path
import re
from typing import Any

from laimr_ros.cli.calibration_result import as_json, judge, Result, Verdict
from laimr_ros.cli.calibration_sweep import FrameRecord
from laimr_ros.latency.model import Network, PowerLaw
import numpy as np

PARAMETERS, REPORT, TEXT, PAGE, PLOT, RECORDS = (
    'parameters.yaml', 'report.json', 'report.txt', 'report.html', 'plot.png', 'frames.jsonl')
# What the dispatcher takes at least.
_LEAST_ALPHA = 1e-6


class ParametersError(ValueError):
    """A parameter file does not hold what is needed; the message names it and what is missing."""


def parameters_text(result: Result, pool: str, model: str, about: Mapping[str, Any]) -> str:
    """
    Return a ROS parameter file for the dispatcher, to be given after its own.

    :param pool: name of the pool.
    :param model: name of the model.
    :param about: how it was measured, for the comment.
    """
    law = result.calibration.power_law()
    # ROS takes 1 for an integer, which is no value for a floating-point parameter.
    values = {name: _float(value) for name, value in (
        ('alpha', max(law.alpha, _LEAST_ALPHA)), ('beta', law.beta), ('gamma', law.gamma),
        ('cv', law.cv))}
    comment = '\n'.join(f'# {line}' for line in (
        'Written by laimr calibrate; give it to the dispatcher after its other parameters:',
        '  --params-file edge.yaml --params-file parameters.yaml',
        *(f'{name}: {value}' for name, value in about.items()),
        *(f'not told by the data: {r.parameter} ({r.reason})' for r in result.calibration.refused)
    ))
    return f"""{comment}
/**/dispatcher:
  ros__parameters:
    pools:
      {_key(pool)}:
        network_mean: {_float(result.network_mean)}
        network_cv: {_float(result.network.careful)}
        latency:
          {_key(model)}: {{{', '.join(f'{name}: {value}' for name, value in values.items())}}}
"""


def read_parameters(
    path: Path, model: str, pool: str = '',
) -> tuple[PowerLaw, Network, str]:
    """
    Read a model back from a dispatcher's parameter file.

    :param path: as ``laimr calibrate`` wrote it, or any other of a dispatcher.
    :param model: name of the model.
    :param pool: name of the pool; may be left out where only one has the model.
    :return: service, network and the pool's name.
    :raises ParametersError: if it is not in there.
    """
    settings = dispatcher_settings(path)
    pools = settings.get('pools')
    pools = pools if isinstance(pools, Mapping) else {}
    having = [name for name, value in pools.items()
              if isinstance(value, Mapping) and isinstance(value.get('latency'), Mapping)
              and model in value['latency'] and pool in ('', name)]
    if len(having) != 1:
        what = f'pools.{pool or "<pool>"}.latency.{model}'
        raise ParametersError(
            f'{path} has no {what}; calibrate that model first' if not having else
            f'{path} has {what} for pools {", ".join(having)}; choose one with --pool')
    values = pools[having[0]]
    law = values['latency'][model]
    try:
        return (
            PowerLaw(float(law['alpha']), float(law.get('beta', 0.0)),
                     float(law.get('gamma', 1.0)), float(law.get('cv', 0.15))),
            Network(float(values.get('network_mean', 0.001)),
                    float(values.get('network_cv', 0.3))), having[0])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ParametersError(
            f'{path}: pools.{having[0]}.latency.{model} cannot be used: {error}') from None


def dispatcher_settings(path: Path) -> dict[str, Any]:
    """Return the dispatcher's part of a parameter file; see ``node_settings``."""
    return node_settings(path, 'dispatcher')


def node_settings(path: Path, node_name: str) -> dict[str, Any]:
    """
    Return one node's part of a ROS parameter file, nested.

    :raises ParametersError: if the file cannot be read.
    """
    import yaml
    try:
        document = yaml.safe_load(path.read_text(encoding='utf-8'))
    except OSError as error:
        raise ParametersError(f'parameter file {str(path)!r}: {error.strerror}') from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ParametersError(
            f'parameter file {str(path)!r} is no YAML: {" ".join(str(error).split())}') from None
    found: dict[str, Any] = {}

    def look(node: Any, name: str) -> None:
        if not isinstance(node, Mapping):
            return
        if 'ros__parameters' in node:
            if name.rsplit('/', 1)[-1] in (node_name, '**'):
                found.update(node['ros__parameters'] or {})
            return
        for key, value in node.items():
            look(value, str(key).strip('/'))

    look(document, '')
    return found


def summary(
    result: Result | None, verdict: Verdict, records: Sequence[FrameRecord],
    about: Mapping[str, Any],
) -> str:
    """Return the report as text; without a result, that of a check."""
    lines = [f'{name}: {value}' for name, value in about.items()]
    if result is not None:
        calibration = result.calibration
        lines += ['', 'service time, mean in seconds: ' + _form(calibration.power_law())]
        for name, estimate in calibration.fit.parameters.items():
            lines.append(f'  {name:<6} {estimate.value:10.5g}   95 % interval '
                         f'[{estimate.low:.5g}, {estimate.high:.5g}]')
        lines += [f'  cv     {calibration.spread.careful:10.3g}   of single frames (standard '
                  f'deviation {calibration.spread.cv:.3g}, by the P99 '
                  f'{calibration.spread.tail_cv:.3g})']
        lines += [f'  {refusal.parameter} is refused: {refusal.reason}'
                  for refusal in calibration.refused]
        lines.append(f'network: mean {1e3 * result.network_mean:.3g} ms, cv '
                     f'{result.network.careful:.3g}')
        held = calibration.held_out
        if held is not None:
            lines.append(
                f'held out ({held.rule}): median error of the mean {held.median_error:.1%}, of '
                f'single frames {held.frame_error:.1%}, {held.frames} frames')
        lines += ['', 'On the same frames (how the parts fit together; no proof):']
    else:
        lines += ['', 'A fresh run against the prediction:']
    lines += ['', f'{"rate":>7} {"frames":>6} {"lost":>5}  {"service, ms":>22} '
              f'{"mean wait, ms":>19} {"P99 in all, ms":>20} {"within":>7}',
              f'{"1/s":>7} {"":>6} {"":>5}  {"measured":>14} {"model":>7} {"measured":>11} '
              f'{"model":>7} {"measured":>12} {"model":>7}']
    for r in verdict.rates:
        error = f'± {1e3 * r.service_error:.2g}' if r.service_error == r.service_error else ''
        lines.append(
            f'{r.rate:7.3g} {r.frames:6d} {r.lost:5d}  {1e3 * r.service:7.4g} {error:>6} '
            f'{1e3 * r.predicted_service:7.4g} {1e3 * r.wait:11.4g} {1e3 * r.predicted_wait:7.4g} '
            f'{1e3 * r.latency:12.4g} {1e3 * r.predicted_latency:7.4g} {r.covered:7.1%}')
    lines += ['', f'median error of the mean service time: {verdict.median_error:.1%}',
              f'answered within the predicted P99: {verdict.coverage:.2%} of {len(records)} '
              f'frames (95 % interval {verdict.coverage_low:.2%} to {verdict.coverage_high:.2%})',
              'within the tighter P99 that takes wait, service and network as independent: '
              f'{verdict.coverage_independent:.2%}']
    return '\n'.join(lines) + '\n'


def _form(law: PowerLaw) -> str:
    if law.beta == 0.0:
        return f'{law.alpha:.4g}, at every rate'
    power = '' if law.gamma == 1.0 else f' ** {law.gamma:.3g}'
    return f'{law.alpha:.4g} + {law.beta:.4g} * (frames/s per replica){power}'


def write_records(folder: Path, records: Sequence[FrameRecord]) -> None:
    """Write one line of JSON a frame."""
    with (folder / RECORDS).open('w', encoding='utf-8') as file:
        for record in records:
            file.write(json.dumps(record.as_json()) + '\n')


def write_result(
    folder: Path, result: Result, records: Sequence[FrameRecord], pool: str, model: str,
    about: Mapping[str, Any], plan: Mapping[str, Any],
) -> str:
    """
    Write everything about a calibration into a folder; return the text report.

    :param plan: rates, rounds, frames and seed, for a later check to use the same.
    """
    text = summary(result, result.verdict, records, about)
    (folder / PARAMETERS).write_text(
        parameters_text(result, pool, model, about), encoding='utf-8')
    (folder / REPORT).write_text(
        json.dumps({'about': dict(about), 'plan': dict(plan), **as_json(result)}, indent=2) + '\n',
        encoding='utf-8')
    (folder / TEXT).write_text(text, encoding='utf-8')
    plot(folder / PLOT, result, records, f'{model} on {pool}')
    picture = base64.b64encode((folder / PLOT).read_bytes()).decode()
    (folder / PAGE).write_text(_page(f'{model} on {pool}', text, picture), encoding='utf-8')
    return text


def _page(title: str, text: str, picture: str) -> str:
    name = html.escape(title)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Calibration of {name}</title>
<style>body {{ font-family: sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em; }}
pre {{ overflow-x: auto; background: #f5f5f5; padding: 1em; }} img {{ max-width: 100%; }}</style>
</head><body><h1>Calibration of {name}</h1>
<img alt="Measured service times and fitted curve; measured and predicted latency"
src="data:image/png;base64,{picture}">
<pre>{html.escape(text)}</pre></body></html>
"""


def plot(path: Path, result: Result, records: Sequence[FrameRecord], title: str) -> None:
    """Draw measured points with intervals, the fitted curve, and held-out points marked."""
    import matplotlib
    matplotlib.use('Agg')
    from matplotlib import pyplot
    calibration, verdict = result.calibration, judge(records, result.model())
    held = {round(rate, 9) for rate, _ in (
        calibration.held_out.mean_errors if calibration.held_out else ())}
    if calibration.held_out is not None and not calibration.held_out.rule.startswith('rates'):
        held = set()  # Every rate is partly fitted and partly held out.
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.5), layout='constrained')
    figure.suptitle(title)
    for marked in (False, True):
        mine = [r for r in verdict.rates if (round(r.rate, 9) in held) == marked]
        if mine:
            left.errorbar(
                [r.rate for r in mine], [r.service for r in mine],
                yerr=np.nan_to_num([r.service_error for r in mine]), fmt='o', capsize=3,
                color='C0', markerfacecolor='white' if marked else 'C0',
                label='held out' if marked else 'fitted')
    rates = np.linspace(0.0, 1.05 * max(r.rate for r in verdict.rates), 200)[1:]
    left.plot(rates, calibration.fit.mean(rates), color='C1', label='curve, all points')
    left.plot(rates, calibration.training.mean(rates), color='C1', linestyle=':',
              label='curve without held-out points')
    left.set(xlabel='frames/s', ylabel='mean service time, s', ylim=(0.0, None))
    left.legend(fontsize='small')
    right.plot([r.rate for r in verdict.rates], [r.latency for r in verdict.rates], 'o',
               label='measured P99')
    model = result.model()
    predicted = [model.quantile(0.99, float(rate), 1) for rate in rates]
    right.plot(rates, predicted, color='C1', label='predicted P99')
    right.plot([r.rate for r in verdict.rates], [r.wait for r in verdict.rates], 'x', color='C2',
               label='measured mean wait')
    right.plot(rates, [model.mean(float(rate), 1) - model.service.mean(float(rate), 1)
                       - model.network.mean for rate in rates],
               color='C2', linestyle=':', label='predicted mean wait')
    top = max([r.latency for r in verdict.rates] + [r.predicted_latency for r in verdict.rates
                                                    if np.isfinite(r.predicted_latency)])
    right.set(xlabel='frames/s', ylabel='from sending to the reply, s', yscale='log',
              ylim=(None, 2.0 * top))
    right.legend(fontsize='small')
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _float(value: float) -> str:
    text = f'{value:.6g}'
    return text if re.search(r'[.]', text) else (
        re.sub(r'e', '.0e', text) if 'e' in text else f'{text}.0')


def _key(name: str) -> str:
    return name if re.fullmatch(r'[A-Za-z_][\w-]*', name) else json.dumps(name)
