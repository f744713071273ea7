"""What a worker is told: models, addresses, limits; the same with ROS and without."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
import difflib
import math
from typing import Any

from laimr_ros.detectors.base import DetectorSpec
from laimr_ros.serving.endpoint import EndpointError, parse

NODE_NAME = 'worker'
KINDS = ('yolo', 'efficientdet', 'emulated')

# Every ROS node has these; they mean nothing to a worker without ROS.
_ROS_ONLY = ('use_sim_time', 'start_type_description_service', 'qos_overrides')


class ConfigError(ValueError):
    """A setting is wrong; the message names it, its value and what is right."""


@dataclass(frozen=True)
class Setting:
    """
    One setting, for parameter descriptors, for help texts and for checks.

    :param name: as in a parameter file; ``models.<name>.`` goes before those of a model.
    :param default: the value that holds without one; its type is the setting's.
    :param description: for people, with the unit.
    :param minimum: smallest value of a number.
    :param maximum: largest value of a number.
    :param choices: all values of a text that has few.
    """

    name: str
    default: Any
    description: str
    minimum: float = -math.inf
    maximum: float = math.inf
    choices: tuple[str, ...] = ()


WORKER_SETTINGS = (
    Setting('model_names', [], 'models to serve; each has settings models.<name>.*'),
    Setting('listen', ['0.0.0.0:8500'],
            'addresses to serve on: host:port (port 0 for any free one) or unix:/path'),
    Setting('max_queue', 4, 'frames that may wait while one is inferred; more are refused as busy',
            0, 10_000),
    Setting('max_pixels', 40_000_000, 'largest image in pixels; larger ones are refused undecoded',
            1, 1_000_000_000),
    Setting('drain_grace_s', 10.0,
            'longest time to finish frames in progress when asked to end, in seconds',
            0.0, 3600.0),
    Setting('emulated_rtt_s', 0.0,
            'mean round-trip time of an emulated network link in front of it, in seconds',
            0.0, 60.0),
    Setting('emulated_rtt_cv', 0.0, 'coefficient of variation of that round-trip time', 0.0, 10.0),
    Setting('emulated_rtt_seed', -1, 'seed of those round-trip times; -1 for others each time',
            -1, 2 ** 31 - 1),
)

MODEL_SETTINGS = (
    Setting('kind', '', 'kind of detector', choices=KINDS),
    Setting('weights', '',
            'file of weights, or an architecture, which then gets random weights'),
    Setting('input_px', 0, "side of the square network input in pixels; 0 for the model's own",
            0, 16_384),
    Setting('device', 'auto', 'auto, cpu, cuda or cuda:N'),
    Setting('half', False, 'half precision, where the device has it'),
    Setting('threads', 1, "CPU threads of the network; 0 for the library's choice", 0, 1024),
    Setting('score_threshold', 0.25, 'detections below it are left out', 0.0, 1.0),
    Setting('max_detections', 100, 'at most so many detections an image', 1, 100_000),
)

_WORKER = {setting.name: setting for setting in WORKER_SETTINGS}
_MODEL = {setting.name: setting for setting in MODEL_SETTINGS}


@dataclass(frozen=True)
class ServerOptions:
    """
    Limits of a worker, and the link in front of it; see ``WORKER_SETTINGS``.

    :param emulated_rtt_seed: None for other round-trip times each time.
    """

    max_queue: int = 4
    max_pixels: int = 40_000_000
    emulated_rtt_s: float = 0.0
    emulated_rtt_cv: float = 0.0
    emulated_rtt_seed: int | None = None


@dataclass(frozen=True)
class WorkerConfig:
    """
    All that a worker is told.

    :param models: what to serve, by name.
    :param listen: addresses to serve on.
    :param server: limits.
    :param drain_grace_s: longest time to finish frames in progress, in seconds.
    """

    models: Mapping[str, DetectorSpec]
    listen: tuple[str, ...] = ('0.0.0.0:8500',)
    server: ServerOptions = field(default_factory=ServerOptions)
    drain_grace_s: float = 10.0


def from_mapping(settings: Mapping[str, Any]) -> WorkerConfig:
    """
    Read settings, nested or with dots, as a parameter file or a ROS node has them.

    Without ``model_names``, every model that is described is served.

    :param settings: for example ``{'models': {'a': {'kind': 'yolo'}}, 'max_queue': 2}``.
    :raises ConfigError: for the first setting that is unknown or wrong.
    """
    flat = flatten(settings)
    values: dict[str, Any] = {}
    models: dict[str, dict[str, Any]] = {}
    for key, value in flat.items():
        if key.split('.', 1)[0] in _ROS_ONLY:
            continue
        if key.startswith('models.'):
            name, _, rest = key.removeprefix('models.').partition('.')
            _read_model(models.setdefault(name, {'options': {}}), key, rest, value)
        elif key in _WORKER:
            values[key] = _check(_WORKER[key], key, value)
        else:
            raise _unknown(key, [*_WORKER, 'models'])
    names = values.get('model_names') or list(models)
    if not names:
        raise ConfigError(
            'no model to serve; give one, for example --model small=yolo:yolov5n.yaml:320, or '
            'models.small.kind: yolo in the parameter file')
    specs = {name: _spec(name, models) for name in names}
    if len(specs) != len(names):
        raise ConfigError(f'model_names is {names}; give every name once')
    seed = values.get('emulated_rtt_seed', -1)
    listen = tuple(values.get('listen', _WORKER['listen'].default))
    for text in listen:
        try:
            parse(text, listening=True)
        except EndpointError as error:
            raise ConfigError(f'listen: {error}') from None
    if not listen:
        raise ConfigError('listen is empty; give an address, for example 0.0.0.0:8500')
    server = ServerOptions(
        **{name: values[name] for name in (
            'max_queue', 'max_pixels', 'emulated_rtt_s', 'emulated_rtt_cv') if name in values},
        emulated_rtt_seed=None if seed < 0 else seed)
    return WorkerConfig(
        specs, listen, server,
        values.get('drain_grace_s', _WORKER['drain_grace_s'].default))


def node_settings(document: Any, node_name: str = NODE_NAME) -> dict[str, Any]:
    """
    Return one node's settings from a parameter file of ROS, or the settings of a plain one.

    A section for all nodes (``/**``) comes first, then that of the node, in any namespace. In a
    file with other sections, what ``/**`` has for other nodes is passed over.

    :param document: what the YAML file holds.
    :param node_name: the node's name.
    :raises ConfigError: if the file has sections, but none for this node.
    """
    if document is None:
        return {}
    if not isinstance(document, Mapping):
        raise ConfigError(
            f'the parameter file holds a {type(document).__name__}; it must hold names and values')
    sections = list(_sections(document, ''))
    if not sections:
        return flatten(document)
    found: dict[str, Any] = {}
    matched = False
    for wildcard in (True, False):
        for path, settings in sections:
            last = path.rsplit('/', 1)[-1]
            if last != ('**' if wildcard else node_name):
                continue
            matched = True
            flat = flatten(settings)
            if wildcard and len(sections) > 1:
                flat = {key: value for key, value in flat.items()
                        if key in _WORKER or key.startswith('models.')}
            found.update(flat)
    if not matched:
        raise ConfigError(
            f'the parameter file has no section {node_name!r}, only '
            f'{", ".join(path for path, _ in sections)}; add "{node_name}: ros__parameters:"')
    return found


def _sections(document: Mapping[Any, Any], path: str) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """Yield the nodes of a parameter file with their settings."""
    for key, value in document.items():
        if not isinstance(value, Mapping):
            continue
        name = f'{path}/{str(key).strip("/")}' if path else str(key)
        if 'ros__parameters' in value:
            yield name, value['ros__parameters'] or {}
        else:
            yield from _sections(value, name)


def flatten(settings: Mapping[str, Any], prefix: str = '') -> dict[str, Any]:
    """Return nested settings as one level, with dots in the names."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        name = f'{prefix}{key}'
        if isinstance(value, Mapping):
            flat.update(flatten(value, f'{name}.'))
        else:
            flat[name] = value
    return flat


def _read_model(model: dict[str, Any], key: str, setting: str, value: Any) -> None:
    if setting.startswith('options.'):
        model['options'][setting.removeprefix('options.')] = value
    elif setting in _MODEL:
        model[setting] = _check(_MODEL[setting], key, value)
    else:
        prefix = key.removesuffix(setting).rstrip('.')
        raise _unknown(key, [f'{prefix}.{name}' for name in (*_MODEL, 'options')])


def _spec(name: str, models: Mapping[str, dict[str, Any]]) -> DetectorSpec:
    if name not in models:
        raise ConfigError(
            f'model_names has {name!r}, but there is no setting models.{name}.kind; '
            f'described are: {", ".join(models) or "none"}')
    model = models[name]
    if 'kind' not in model:
        raise ConfigError(f'models.{name}.kind is missing; give one of {", ".join(KINDS)}')
    return replace(DetectorSpec(model['kind']), **model)


def _check(setting: Setting, key: str, value: Any) -> Any:
    """Return a value in the setting's type, or say what is wrong with it."""
    default = setting.default
    if isinstance(default, list):
        if isinstance(value, str):
            value = [value]
        if not isinstance(value, (list, tuple)) or not all(isinstance(v, str) for v in value):
            raise ConfigError(f'{key} is {value!r}; give a list of texts')
        return [text for text in value if text]  # ROS has no empty list: [''] stands for it.
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise ConfigError(f'{key} is {value!r}; give true or false')
        return value
    if isinstance(default, str):
        if not isinstance(value, str):
            raise ConfigError(f'{key} is {value!r}; give a text')
        if setting.choices and value not in setting.choices:
            raise ConfigError(
                f'{key} is {value!r}; give one of {", ".join(setting.choices)}'
                f'{_nearest(value, setting.choices)}')
        return value
    whole = isinstance(default, int)
    right_type = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    if not right_type or not setting.minimum <= value <= setting.maximum:
        raise ConfigError(
            f'{key} is {value!r}; give a {"whole " if whole else ""}number from '
            f'{setting.minimum:g} to {setting.maximum:g} ({setting.description})')
    return value if whole else float(value)


def _unknown(key: str, known: Iterable[str]) -> ConfigError:
    known = list(known)
    hint = _nearest(key, known) or f'; known are {", ".join(known)}'
    return ConfigError(f'unknown setting {key!r}{hint}')


def _nearest(text: str, known: Iterable[str]) -> str:
    matches = difflib.get_close_matches(text, list(known), 1, 0.6)
    return f'; did you mean {matches[0]!r}?' if matches else ''
