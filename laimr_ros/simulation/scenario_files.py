"""Scenarios from YAML: those that are shipped, and what differs from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
import functools
from pathlib import Path
from typing import Any, TypeVar

from laimr_ros.control.nouns import PowerLaw
from laimr_ros.simulation.scenarios import (
    ArrivalLaw,
    Fault,
    InstanceLaw,
    LaneLaw,
    Lognormal,
    ModelLaw,
    Modulation,
    PoolLaw,
    Scenario,
    ScenarioError,
)
import yaml

_SHIPPED = Path(__file__).with_name('scenarios.yaml')
_BASE = 'paper'

T = TypeVar('T')


def scenario_names() -> list[str]:
    """Return the names of the scenarios that are shipped."""
    return list(_shipped())


def load_scenario(
    name: str = _BASE, overrides: Mapping[str, Any] | None = None, file: Path | None = None
) -> Scenario:
    """
    Return a scenario.

    :param name: ``paper`` or a variant of it.
    :param overrides: values that differ, as in the file: mappings are merged key by key.
    :param file: YAML file of scenarios; the shipped ones if left out.
    :raises ScenarioError: for an unknown scenario, an unknown key or a bad value.
    """
    try:
        known = _shipped() if file is None else yaml.safe_load(file.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ScenarioError(f'scenarios cannot be read from {file}: {error}') from None
    if not isinstance(known, dict) or name not in known:
        raise ScenarioError(
            f'scenario {name!r} is unknown; there are {sorted(known) if known else []}')
    values = dict(known.get(_BASE, {}))
    if name != _BASE:
        values = _merge(values, known[name], name)
    if overrides:
        values = _merge(values, overrides, name)
    return from_values(name, values)


def from_values(name: str, values: Mapping[str, Any]) -> Scenario:
    """Return a scenario of plain values, as a file has them. :raises ScenarioError: if bad."""
    given = dict(values)
    pools = {}
    for pool, content in _table(given.pop('pools', {}), f'{name}.pools').items():
        where = f'{name}.pools.{pool}'
        content = dict(_table(content, where))
        models = {
            model: _make(PowerLaw, law, f'{where}.models.{model}')
            for model, law in _table(content.pop('models', {}), f'{where}.models').items()}
        for law in ('network', 'start_up'):
            if law in content:
                content[law] = _make(Lognormal, content[law], f'{where}.{law}')
        pools[pool] = _make(PoolLaw, {**content, 'models': models}, where)
    parts: dict[str, Any] = {'name': name, 'pools': pools}
    kinds: dict[str, type] = {'lanes': LaneLaw, 'instances': InstanceLaw, 'models': ModelLaw}
    for key, kind in kinds.items():
        parts[key] = {
            thing: _make(kind, content, f'{name}.{key}.{thing}')
            for thing, content in _table(given.pop(key, {}), f'{name}.{key}').items()}
    parts['arrivals'] = _make(ArrivalLaw, given.pop('arrivals', {}), f'{name}.arrivals')
    parts['modulation'] = _make(Modulation, given.pop('modulation', {}), f'{name}.modulation')
    parts['faults'] = tuple(
        _make(Fault, content, f'{name}.faults') for content in given.pop('faults', ()))
    return _make(Scenario, {**given, **parts}, name)


@functools.lru_cache(maxsize=1)
def _shipped() -> dict[str, Any]:
    scenarios: dict[str, Any] = yaml.safe_load(_SHIPPED.read_text())
    return scenarios


def _table(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ScenarioError(f'{where} is {value!r}: give a mapping')
    return value


def _merge(base: Mapping[str, Any], other: Any, where: str) -> dict[str, Any]:
    merged = dict(base)
    for key, value in _table(other, where).items():
        old = merged.get(key)
        merged[key] = (
            _merge(old, value, f'{where}.{key}')
            if isinstance(old, Mapping) and isinstance(value, Mapping) else value)
    return merged


def _make(kind: type[T], values: Any, where: str) -> T:
    """Return a dataclass of plain values; every key must be one of its fields."""
    table = _table(values, where)
    known = {f.name: f for f in fields(kind)}  # type: ignore[arg-type]
    for key in table:
        if key not in known:
            raise ScenarioError(f'{where}.{key} is unknown; use one of {sorted(known)}')
    plain = {}
    for key, value in table.items():
        wanted = str(known[key].type)
        if wanted.startswith('float') and isinstance(value, (int, float)) and not isinstance(
                value, bool):
            value = float(value)
        elif wanted.startswith('tuple') and isinstance(value, (list, tuple)):
            value = tuple(value)
        elif (wanted, type(value)) not in (
                ('int', int), ('bool', bool), ('str', str), ('float | None', type(None))
        ) and wanted in ('float', 'int', 'bool', 'str', 'float | None'):
            raise ScenarioError(f'{where}.{key} is {value!r}: give a value of type {wanted}')
        plain[key] = value
    try:
        return kind(**plain)
    except ScenarioError:
        raise
    except (TypeError, ValueError) as error:
        raise ScenarioError(f'{where}: {error}') from None
