"""
ROS parameters from a table: declared, described, checked and changed in one way by every node.

A node lists its parameters as :class:`ParameterSpec`, calls :func:`declare` (again later, for
names that depend on values, such as ``pools.<pool>.endpoints``), then :func:`warn_unknown`, and,
where it takes changes while it runs, :func:`on_change`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
import difflib
import math
import sys
import traceback
from typing import Any
from weakref import WeakKeyDictionary

from rcl_interfaces.msg import (
    FloatingPointRange,
    IntegerRange,
    ParameterDescriptor,
    SetParametersResult,
)
from rclpy.node import Node
from rclpy.parameter import Parameter

Value = bool | int | float | str | list
Values = Mapping[str, Any]
Validate = Callable[[Values, Set[str]], None]
Apply = Callable[[Values, Set[str]], None]

_INT64_MAX = 2**63 - 1
_ARRAYS = {
    Parameter.Type.BOOL_ARRAY: ('booleans', '[true, false]'),
    Parameter.Type.INTEGER_ARRAY: ('whole numbers', '[1, 2]'),
    Parameter.Type.DOUBLE_ARRAY: ('numbers', '[1.0, 2.5]'),
    Parameter.Type.STRING_ARRAY: ('strings', "['a', 'b']"),
}
_SCALARS = {
    Parameter.Type.BOOL: ('a boolean', 'true or false'),
    Parameter.Type.INTEGER: ('a whole number', 'for example 3'),
    Parameter.Type.DOUBLE: ('a number', 'for example 1.5'),
    Parameter.Type.STRING: ('a string', "in quotes, for example 'text'"),
}


class ParameterError(ValueError):
    """A parameter has a value that cannot be used; the message names it, its value and the fix."""


@dataclass(frozen=True)
class ParameterSpec:
    """
    One parameter of a node.

    :param name: dotted name, as in YAML.
    :param default: its value where nobody sets one; also gives the type. An empty list is one of
        strings.
    :param description: what it does, one line, without the unit.
    :param unit: unit of the value (``s``, ``Hz``, ``px``), empty where it has none.
    :param minimum: lowest value, itself allowed; for arrays of numbers, of each element.
    :param maximum: highest value, itself allowed.
    :param choices: the only values allowed, where the set is closed.
    :param live: whether it may change while the node runs; otherwise it is read-only.
    """

    name: str
    default: Value
    description: str
    unit: str = ''
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[Value, ...] = ()
    live: bool = False

    @property
    def type(self) -> Parameter.Type:
        """Return the type of the value in rclpy's words."""
        if isinstance(self.default, (list, tuple)) and not self.default:
            return Parameter.Type.STRING_ARRAY
        return Parameter.Type.from_parameter_value(self.default)

    def descriptor(self, *, read_only: bool | None = None) -> ParameterDescriptor:
        """
        Return the descriptor that tools such as ``ros2 param describe`` show.

        :param read_only: overrules ``live``.
        """
        descriptor = ParameterDescriptor(
            name=self.name,
            type=self.type.value,
            description=f'{self.description} [{self.unit}]' if self.unit else self.description,
            read_only=not self.live if read_only is None else read_only,
        )
        if self.choices:
            descriptor.additional_constraints = f'one of {_listed(self.choices)}'
        if self.minimum is None and self.maximum is None:
            return descriptor
        if self.type is Parameter.Type.INTEGER:
            low = -_INT64_MAX if self.minimum is None else int(self.minimum)
            high = _INT64_MAX if self.maximum is None else int(self.maximum)
            descriptor.integer_range = [IntegerRange(from_value=low, to_value=high, step=0)]
        elif self.type is Parameter.Type.DOUBLE:
            descriptor.floating_point_range = [FloatingPointRange(
                from_value=-sys.float_info.max if self.minimum is None else float(self.minimum),
                to_value=sys.float_info.max if self.maximum is None else float(self.maximum),
                step=0.0,
            )]
        else:
            descriptor.additional_constraints = self._range_in_words()
        return descriptor

    def convert(self, value: Any) -> Any:
        """
        Return a value in this parameter's type, if it can be meant so.

        ``5`` is taken for ``5.0``, and ``[]`` for an empty list of any type, as people write them.

        :raises ParameterError: if the value has another type, is out of range or no choice.
        """
        converted = self._typed(value)
        elements = converted if isinstance(converted, list) else [converted]
        for element in elements:
            self._check(element)
        return converted

    def _typed(self, value: Any) -> Any:
        kind = self.type
        if kind in _ARRAYS:
            is_list = not isinstance(value, (str, bytes, bool, int, float)) and value is not None
            values = list(value) if is_list else []
            if kind is Parameter.Type.DOUBLE_ARRAY and all(
                isinstance(v, (int, float)) and not isinstance(v, bool) for v in values
            ):
                values = [float(v) for v in values]
            if is_list and (not values or Parameter.Type.from_parameter_value(values) is kind):
                return values
            what, example = _ARRAYS[kind]
            raise ParameterError(
                f'parameter {self.name}: {value!r} is not a list of {what}; '
                f'write it like {example}'
            )
        whole = isinstance(value, (int, float)) and not isinstance(value, bool)
        if kind is Parameter.Type.DOUBLE and whole:
            return float(value)
        if kind is Parameter.Type.INTEGER and isinstance(value, float) and value.is_integer():
            return int(value)
        if value is not None and type(value) is type(self.default):
            return value
        what, example = _SCALARS[kind]
        raise ParameterError(
            f'parameter {self.name}: {value!r} is not {what}; write it {example}'
        )

    def _check(self, value: Any) -> None:
        if self.choices and value not in self.choices:
            near = difflib.get_close_matches(str(value), [str(c) for c in self.choices], 1)
            hint = f'did you mean {near[0]!r}? ' if near else ''
            raise ParameterError(
                f'parameter {self.name}: {value!r} is unknown; {hint}'
                f'use one of {_listed(self.choices)}'
            )
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return
        low = -math.inf if self.minimum is None else self.minimum
        high = math.inf if self.maximum is None else self.maximum
        if not math.isfinite(value) or not low <= value <= high:
            raise ParameterError(
                f'parameter {self.name}: {value!r} is out of range; '
                f'set a value {self._range_in_words()}'
            )

    def _range_in_words(self) -> str:
        unit = f' {self.unit}' if self.unit else ''
        if self.minimum is None and self.maximum is None:
            return 'that is finite'
        if self.maximum is None:
            return f'of at least {self.minimum}{unit}'
        if self.minimum is None:
            return f'of at most {self.maximum}{unit}'
        return f'from {self.minimum} to {self.maximum}{unit}'


@dataclass
class _Declared:
    """What :func:`declare` has declared on one node."""

    specs: dict[str, ParameterSpec] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    declaring: bool = False


_declared: WeakKeyDictionary[Node, _Declared] = WeakKeyDictionary()


def declare(node: Node, specs: Iterable[ParameterSpec]) -> dict[str, Any]:
    """
    Declare parameters on a node and return their values, from YAML or command line or default.

    May be called several times, for names that depend on values declared before.

    :param node: the node that gets the parameters.
    :param specs: the table of parameters.
    :returns: name to value, of these specs only.
    :raises ParameterError: if values set from outside cannot be used; tells all of them at once.
    """
    declared = _declared.get(node)
    if declared is None:
        declared = _declared[node] = _Declared()
        _convert_and_check_sets(node, declared)
    values: dict[str, Any] = {}
    errors: list[str] = []
    declared.declaring = True
    try:
        for spec in specs:
            try:
                value = _override(node, spec)
            except ParameterError as error:
                errors.append(str(error))
                continue
            _declare_value(node, spec, value)
            declared.specs[spec.name] = spec
            values[spec.name] = value
    finally:
        declared.declaring = False
    declared.values.update(values)
    if errors:
        raise ParameterError('\n'.join(errors))
    return values


def on_change(node: Node, validate: Validate | None, apply: Apply) -> None:
    """
    Take changes of parameters while the node runs. Called once a node.

    Both functions get all the values that :func:`declare` knows, as they will be after the change,
    and the names that differ from before; both run in the executor's thread.

    :param node: a node that went through :func:`declare`.
    :param validate: raises ``ValueError`` to refuse a change; its text becomes the reason that the
        caller of the change is given. Changes nothing itself.
    :param apply: makes an accepted change effective. Must not fail; if it does, that is logged.
    """
    declared = _declared[node]

    def check(parameters: list[Parameter]) -> SetParametersResult:
        if declared.declaring or validate is None:
            return SetParametersResult(successful=True)
        try:
            proposed, names = _proposed(declared, parameters)
            if names:
                validate(proposed, names)
        except ValueError as error:
            return SetParametersResult(successful=False, reason=str(error))
        return SetParametersResult(successful=True)

    def effect(parameters: list[Parameter]) -> None:
        if declared.declaring:
            return
        proposed, names = _proposed(declared, parameters)
        declared.values.update(proposed)
        if not names:
            return
        try:
            apply(proposed, names)
        except Exception:
            node.get_logger().error(
                f'a change of {_listed(sorted(names))} was accepted but failed:\n'
                f'{traceback.format_exc()}'
            )

    node.add_on_set_parameters_callback(check)
    node.add_post_set_parameters_callback(effect)


def warn_unknown(node: Node) -> tuple[str, ...]:
    """
    Log a warning for each value from YAML or command line that no parameter takes.

    Call it when all parameters are declared: a misspelt name would be ignored in silence.

    :param node: a node that went through :func:`declare`.
    :returns: the names nobody knows.
    """
    # rclpy has no public way to read what was set from outside but never declared.
    overrides = getattr(node, '_parameter_overrides', {})
    known = node.list_parameters([], 0).names
    unknown = tuple(
        name for name in overrides
        # Quality of service is declared with each topic, perhaps only when a robot appears.
        if not node.has_parameter(name) and not name.startswith('qos_overrides.')
    )
    for name in unknown:
        near = difflib.get_close_matches(name, known, 1)
        hint = f'did you mean {near[0]}?' if near else 'remove it'
        node.get_logger().warning(
            f'parameter {name} is unknown to {node.get_fully_qualified_name()} and ignored; {hint}'
        )
    return unknown


def _override(node: Node, spec: ParameterSpec) -> Any:
    """Return the value set from outside, in the spec's type, or the default."""
    # Declared with any type first: rclpy would refuse `5` for a float with less helpful words.
    found = node.declare_parameter(
        spec.name, None, ParameterDescriptor(dynamic_typing=True)
    ).value
    node.undeclare_parameter(spec.name)
    if found is None:
        return list(spec.default) if isinstance(spec.default, (list, tuple)) else spec.default
    return spec.convert(found)


def _declare_value(node: Node, spec: ParameterSpec, value: Any) -> None:
    if value != []:
        node.declare_parameter(spec.name, value, spec.descriptor(), ignore_override=True)
        return
    # rclpy takes an empty list for one of bytes, so its type is declared and its value set apart.
    node.declare_parameter(
        spec.name, spec.type, spec.descriptor(read_only=False), ignore_override=True
    )
    node.set_parameters([Parameter(spec.name, spec.type, [])])
    node.set_descriptor(spec.name, spec.descriptor())


def _convert_and_check_sets(node: Node, declared: _Declared) -> None:
    """Give later changes the same conversions and checks as the first values."""

    def convert(parameters: list[Parameter]) -> list[Parameter]:
        return [_converted(declared.specs.get(p.name), p) for p in parameters]

    def check(parameters: list[Parameter]) -> SetParametersResult:
        for parameter in parameters:
            spec = declared.specs.get(parameter.name)
            if spec is None:
                continue
            try:
                spec.convert(parameter.value)
            except ParameterError as error:
                return SetParametersResult(successful=False, reason=str(error))
        return SetParametersResult(successful=True)

    node.add_pre_set_parameters_callback(convert)
    node.add_on_set_parameters_callback(check)


def _converted(spec: ParameterSpec | None, parameter: Parameter) -> Parameter:
    if spec is None or parameter.type_ is spec.type:
        return parameter
    try:
        return Parameter(parameter.name, spec.type, spec.convert(parameter.value))
    except ParameterError:
        return parameter  # Refused with a reason by the check that follows.


def _proposed(
    declared: _Declared, parameters: list[Parameter]
) -> tuple[dict[str, Any], set[str]]:
    """Return all values as they will be, and the names that differ from what is."""
    values = dict(declared.values)
    names = set()
    for parameter in parameters:
        if parameter.name not in declared.specs:
            continue
        value = declared.specs[parameter.name].convert(parameter.value)
        if values.get(parameter.name) != value:
            names.add(parameter.name)
        values[parameter.name] = value
    return values, names


def _listed(values: Iterable[Any]) -> str:
    return ', '.join(str(value) for value in values)
