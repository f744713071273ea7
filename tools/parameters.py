"""
Write docs/parameters.md from the nodes' own parameter tables: ``python tools/parameters.py``.

With ``--check`` nothing is written; the exit status is 1 if the file is out of date.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
import sys

from laimr_ros.nodes import (
    camera_parameters,
    dispatcher_parameters,
    kubernetes_bridge,
    local_bridge,
    worker,
)
from laimr_ros.nodes.parameters import ParameterSpec
from laimr_ros.serving.config import MODEL_SETTINGS, WORKER_SETTINGS

PATH = Path(__file__).resolve().parents[1] / 'docs' / 'parameters.md'
HEAD = """# Parameters of all nodes

Made by `python tools/parameters.py` from the tables in the code; do not edit.
`<lane>`, `<pool>`, `<model>` and `<instance>` stand for the names given in `lane_names`,
`pool_names`, `pools.<pool>.models` and `instance_names`. *live*: may change while the node runs.
The `worker` takes changes while it is not configured; `laimr worker` takes the same names in its
`--params-file`.
"""


def _value(spec: ParameterSpec) -> str:
    if isinstance(spec.default, str):
        return f'`{spec.default!r}`'
    if isinstance(spec.default, bool):
        return f'`{str(spec.default).lower()}`'
    return f'`{spec.default}`'


def _range(spec: ParameterSpec) -> str:
    if spec.choices:
        return ', '.join(f'`{choice}`' for choice in spec.choices)
    if spec.minimum is None and spec.maximum is None:
        return ''
    low = '' if spec.minimum is None else f'{spec.minimum:g}'
    high = '' if spec.maximum is None else f'{spec.maximum:g}'
    return f'{low} to {high}' if low and high else f'>= {low}' if low else f'<= {high}'


def _table(title: str, specs: Iterable[ParameterSpec]) -> str:
    lines = [f'\n## {title}\n', '| parameter | default | unit | range | live | what it does |',
             '|---|---|---|---|---|---|']
    for spec in specs:
        what = spec.description.replace('|', '\\|').replace('<', '&lt;')
        lines.append(f'| `{spec.name}` | {_value(spec)} | {spec.unit} | {_range(spec)} | '
                     f'{"yes" if spec.live else ""} | {what} |')
    return '\n'.join(lines) + '\n'


def text() -> str:
    """Return the whole document."""
    tables = (
        ('dispatcher', dispatcher_parameters.specifications(
            '<lane>', '<pool>', '<model>', '<instance>')),
        ('local_bridge', (*local_bridge.PARAMETERS, *local_bridge.pool_parameters('<pool>'))),
        ('kubernetes_bridge', (
            *kubernetes_bridge.PARAMETERS, *kubernetes_bridge.pool_parameters('<pool>'))),
        ('camera', camera_parameters.SPECS),
        ('worker', (worker.AUTOSTART, *map(worker.specification, WORKER_SETTINGS),
                    *(worker.specification(s, 'models.<model>.') for s in MODEL_SETTINGS))),
    )
    return HEAD + ''.join(_table(name, specs) for name, specs in tables)


def main() -> int:
    """Write or check the document; return the process exit status."""
    wanted = text()
    if '--check' in sys.argv[1:]:
        if PATH.exists() and PATH.read_text() == wanted:
            return 0
        print(f'{PATH} is out of date: run "python tools/parameters.py"', file=sys.stderr)
        return 1
    PATH.write_text(wanted)
    return 0


if __name__ == '__main__':
    sys.exit(main())
