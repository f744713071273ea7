"""
Waits against simulation: ``python -m benchmarks.queueing [--docs FILE] [--json FILE]``.

The 0.99 quantile of the wait in a G/G/c queue, pooled and split, by the formulas of
``laimr_ros.latency.queueing`` and by simulation. Seeds are fixed. ``--docs docs/queueing.md``
writes the tables; ``--scale 0.1`` takes a tenth of the arrivals, for a quick look.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
import itertools
import math
from pathlib import Path
import sys

from benchmarks.queue_simulation import DISCIPLINES, Estimate, estimate
from benchmarks.report import add_arguments, median, write
from laimr_ros.latency.queueing import Discipline, erlang_c, wait_quantile

TOLERANCE = 0.15
P = 0.99
# What must hold, and other cells, on which no constant was chosen.
GRID = ((1, 4, 16), (0.1, 1.0, 4.0), (0.1, 1.0), (0.5, 0.7, 0.9))
OTHERS = ((2, 8, 32), (0.25, 2.0), (0.05, 0.5), (0.6, 0.8))
TITLES = {
    'pooled': 'One queue (`pooled`)',
    'random': 'A queue a server, chosen by lot (`random`)',
    'round_robin': 'A queue a server, in turns (`round_robin`)',
}


@dataclass(frozen=True)
class Cell:
    """One case and what came out, in mean service times."""

    discipline: str
    servers: int
    ca2: float
    cs2: float
    rho: float
    truth: Estimate
    formula: float
    plain: float

    @property
    def error(self) -> float:
        """Return the relative error of the formula; of nothing against nothing it is none."""
        return relative(self.formula, self.truth.wait)

    @property
    def misses(self) -> bool:
        """Return whether it is off by more than the tolerance."""
        return not abs(self.error) <= TOLERANCE

    @property
    def name(self) -> str:
        """Return what the case is called."""
        return (f'{self.discipline}, c = {self.servers}, Ca² = {self.ca2:g}, Cs² = {self.cs2:g}, '
                f'rho = {self.rho:g}')


def relative(value: float, truth: float) -> float:
    """Return the relative error; a simulated wait below a millionth of a service is none."""
    if truth < 1e-6:
        return 0.0 if value < 1e-6 else math.inf
    return value / truth - 1.0


def plain_quantile(cell_rho: float, servers: int, ca2: float, cs2: float) -> float:
    """Return the wait by the plain formula, without any refinement, for comparison."""
    waits = erlang_c(servers, cell_rho * servers)
    if waits <= 1.0 - P:
        return 0.0
    return (ca2 + cs2) / (2.0 * servers * (1.0 - cell_rho)) * math.log(waits / (1.0 - P))


def cells(
    grid: tuple[Sequence[float], ...], scale: float, family: str, seed: int
) -> Iterable[Cell]:
    """Simulate every case of a grid."""
    for discipline, servers, ca2, cs2, rho in itertools.product(DISCIPLINES, *grid):
        c = int(servers)
        if c == 1 and discipline != 'pooled':
            continue
        count = scale * (4e6 if rho >= 0.8 else 1.5e6)
        if discipline != 'pooled':
            count /= 2.0 if c <= 4 else 4.0
        truth = estimate(
            discipline, c, rho, ca2, cs2, count=int(count), seed=seed, p=P, family=family)
        kind = Discipline(discipline)
        own = kind.split_scv(ca2, c)
        yield Cell(
            discipline, c, ca2, cs2, rho, truth,
            float(wait_quantile(P, rho * c, 1.0, c, ca2=ca2, cs2=cs2, discipline=kind)),
            plain_quantile(rho, c if discipline == 'pooled' else 1, own, cs2))
        print(f'\r{discipline:12} c={c:<3} Ca2={ca2:<5g} Cs2={cs2:<5g} rho={rho:g}   ',
              end='', file=sys.stderr, flush=True)
    print(file=sys.stderr)


def table(discipline: str, found: Sequence[Cell]) -> str:
    """Return one discipline's cells in Markdown, a utilisation a column."""
    own = [cell for cell in found if cell.discipline == discipline]
    rhos = sorted({cell.rho for cell in own})
    lines = [f'### {TITLES[discipline]}', '',
             '| c | Ca² | Cs² |' + ''.join(f' rho {rho:g} |' for rho in rhos),
             '|--:|--:|--:|' + '--:|' * len(rhos)]
    rows: dict[tuple[int, float, float], list[Cell]] = {}
    for cell in own:
        rows.setdefault((cell.servers, cell.ca2, cell.cs2), []).append(cell)
    for (servers, ca2, cs2), row in rows.items():
        parts = [f'| {servers} | {ca2:g} | {cs2:g} |']
        for cell in sorted(row, key=lambda c: c.rho):
            error = f'{cell.error:+.0%}' if math.isfinite(cell.error) else 'no wait'
            mark = '**' if cell.misses else ''
            parts.append(f' {cell.truth.wait:.3g} ± {cell.truth.error:.2g}, {cell.formula:.3g} '
                         f'({mark}{error}{mark}) |')
        lines.append(''.join(parts))
    return '\n'.join(lines) + '\n'


def misses(found: Sequence[Cell]) -> str:
    """Return the cells that miss, by name, and what that means for a frame."""
    lines = []
    for cell in found:
        if cell.misses:
            apart = cell.formula - cell.truth.wait
            lines.append(
                f'- {cell.name}: simulated {cell.truth.wait:.3f}, formula {cell.formula:.3f}; '
                f'{apart:+.3f} mean service times, {apart / cell.truth.sojourn:+.1%} of the P99 '
                'of wait and service together.')
    return '\n'.join(lines) + '\n' if lines else 'None.\n'


def document(
    found: Sequence[Cell], others: Sequence[Cell], shapes: Sequence[Cell]
) -> str:
    """Return the page of the documentation."""
    def held(cells: Sequence[Cell]) -> str:
        good = sum(not cell.misses for cell in cells)
        plain = sum(abs(relative(cell.plain, cell.truth.wait)) <= TOLERANCE for cell in cells)
        worst = max((abs(cell.formula - cell.truth.wait) / cell.truth.sojourn
                     for cell in cells if cell.misses), default=0.0)
        return (f'{good} of {len(cells)} within {TOLERANCE:.0%} (plain formula: {plain});\n'
                f'  those outside are off by at most {worst:.1%} of the P99 of wait and service')

    return f"""# How well the waits are predicted

Written by `python -m benchmarks.queueing --docs docs/queueing.md`; seeds are fixed. Times are in
mean service times. Each field: simulated 0.99 quantile of the wait ± half of its 95 % confidence
interval, the formula's, and the formula's error. **Bold** errors are over {TOLERANCE:.0%}.

The formula is `P(W > t) ~ alpha exp(-eta t)` (Abate, Choudhury and Whitt 1995). `eta` solves
`E[exp(eta S / c)] E[exp(-eta T)] = 1` for distributions fitted to two moments; `alpha = eta E[W]`,
with `E[W]` after Whitt (1993) and two factors of our own for arrivals that are not Poisson's; see
`laimr_ros/latency/queueing.py`. The *plain* formula is
`(Ca² + Cs²) / (2 (c mu - lambda)) ln(C / (1 - p))`. Both are exact for M/M/c.

A split stream is simulated as one: gaps of the whole are drawn with `Ca²`, then dealt out by lot
(each queue sees `(Ca² + c - 1) / c`) or in turns (`Ca² / c`).

## Result

- The grid below (gamma, exponential or hyper-exponential times): {held(found)}.
- Other cells, on which no constant was chosen: {held(others)}.
- These other cells with log-normal gaps and service times of the same two moments: {held(shapes)}.
  This is what two moments cannot tell, for any formula: measure, and correct online.

Cells that miss, most of them because the wait is short beside the service time and the
exponential tail has not begun at the 0.99 quantile:

{misses(found)}
Of the other cells:

{misses(others)}
Of the other cells with log-normal times:

{misses(shapes)}
## The grid

{chr(10).join(table(discipline, found) for discipline in DISCIPLINES)}
## Other cells

{chr(10).join(table(discipline, others) for discipline in DISCIPLINES)}
## Other cells with log-normal times

{chr(10).join(table(discipline, shapes) for discipline in DISCIPLINES)}"""


def main(argv: Sequence[str] | None = None) -> int:
    """Simulate, compare, and return 0 if every miss is small beside the service time."""
    parser = argparse.ArgumentParser(prog='python -m benchmarks.queueing', description=__doc__)
    parser.add_argument('--scale', type=float, default=1.0, help='of the number of arrivals')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--docs', type=Path, metavar='FILE', help='write the tables to it')
    add_arguments(parser)
    args = parser.parse_args(argv)
    found = list(cells(GRID, args.scale, 'usual', args.seed))
    others = list(cells(OTHERS, args.scale, 'usual', args.seed))
    shapes = list(cells(OTHERS, args.scale, 'lognormal', args.seed))
    if args.docs is not None:
        args.docs.write_text(document(found, others, shapes).rstrip() + '\n', encoding='utf-8')
    figures: dict[str, float] = {}
    for name, group in (
            ('grid', found), ('others', others), ('lognormal', shapes)):
        missed = [cell for cell in group if cell.misses]
        figures[f'{name}_cells'] = len(group)
        figures[f'{name}_cells_missed'] = len(missed)
        figures[f'{name}_median_error_ratio'] = median(
            [abs(cell.error) for cell in group if math.isfinite(cell.error)])
        figures[f'{name}_worst_miss_of_sojourn_ratio'] = max(
            (abs(cell.formula - cell.truth.wait) / cell.truth.sojourn for cell in missed),
            default=0.0)
    write(figures, args)
    print('missed:', *(cell.name for cell in (*found, *others) if cell.misses), sep='\n  ')
    return 0 if figures['grid_worst_miss_of_sojourn_ratio'] <= TOLERANCE else 1


if __name__ == '__main__':
    sys.exit(main())
