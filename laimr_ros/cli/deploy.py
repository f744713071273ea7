"""``laimr deploy``: the Kubernetes objects of a parameter file."""

from __future__ import annotations

import argparse
import base64
from collections.abc import Mapping
from pathlib import Path
import sys
from typing import Any

from laimr_ros.cli.kubernetes_names import wrong_image, wrong_namespace
from laimr_ros.cli.outputs import say_whole
from laimr_ros.cli.ranges import out_of_range

_EPILOGUE = """
examples:
  laimr deploy render --params-file config/kubernetes.yaml | kubectl apply -f -
  laimr deploy render --params-file my.yaml --no-bridge      (the bridge runs on the edge host)
  laimr deploy certificate --namespace laimr | kubectl apply -f -      (a new one, for a year)
"""
# Clusters of ten years ago are gone.
_MOST_DAYS = 3650


class DeployError(ValueError):
    """The parameters do not describe a deployment; the message says what to change."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this subcommand."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOGUE
    actions = parser.add_subparsers(dest='action', required=True, metavar='ACTION')
    render = actions.add_parser('render', help='print the objects of a parameter file, in YAML')
    render.add_argument(
        '--params-file', metavar='FILE', required=True,
        help='YAML parameters of ROS, with sections kubernetes_bridge, worker and, if wanted, '
             'deploy')
    render.add_argument('--namespace', help='overrides that of the parameter file')
    render.add_argument('--image', help='of the workers; overrides that of the parameter file')
    render.add_argument('--bridge-image', help='of the bridge, likewise')
    render.add_argument(
        '--no-bridge', action='store_true',
        help='without the bridge as a pod: it runs where the dispatcher does')
    render.add_argument(
        '--monitoring', action='store_true',
        help='with a ServiceMonitor for the Prometheus operator')
    render.add_argument(
        '--no-certificate', action='store_true',
        help='for external metrics: without Secret and APIService, where something else, such as '
             'cert-manager, makes the certificate')
    certificate = actions.add_parser(
        'certificate', help='print a new certificate for external metrics, and its APIService')
    certificate.add_argument('--namespace', default='laimr', help='of the bridge')
    certificate.add_argument('--days', type=int, default=365, help='for how long it is valid')


def run(args: argparse.Namespace) -> int:
    """Print objects; return the exit status: 2 for what is wrong with the command or file."""
    import yaml
    try:
        _check_options(args)
        objects = _certificate(args.namespace, args.days) if args.action == 'certificate' else (
            render(
                _read(args.params_file), namespace=args.namespace, image=args.image,
                bridge_image=args.bridge_image, with_bridge=not args.no_bridge,
                monitoring=args.monitoring, certificate=not args.no_certificate))
    except ValueError as error:
        print(f'laimr deploy: {error}', file=sys.stderr)
        return 2
    yaml.add_representer(str, _represent_text, Dumper=yaml.SafeDumper)
    yaml.SafeDumper.ignore_aliases = lambda *_: True  # type: ignore[method-assign]
    problem = say_whole(yaml.safe_dump_all(objects, sort_keys=False))
    if problem:
        print(f'laimr deploy: the objects could not be written whole ({problem}); use none of '
              'what was', file=sys.stderr)
        return 1
    return 0


def _check_options(args: argparse.Namespace) -> None:
    """
    Check what is given on the command line.

    :raises DeployError: naming option and rule.
    """
    problem = '' if args.namespace is None else wrong_namespace('--namespace', args.namespace)
    if args.action == 'certificate':
        problem = problem or out_of_range('--days', args.days, 1, _MOST_DAYS)
    else:
        for option in ('image', 'bridge_image'):
            text = getattr(args, option)
            if text is not None:
                problem = problem or wrong_image(f'--{option.replace("_", "-")}', text)
    _sound(problem)


def _sound(problem: str) -> None:
    """
    Do nothing if there is no problem.

    :raises DeployError: if there is one.
    """
    if problem:
        raise DeployError(problem)


def render(
    document: Mapping[str, Any], *, namespace: str | None = None, image: str | None = None,
    bridge_image: str | None = None, with_bridge: bool = True, monitoring: bool = False,
    certificate: bool = True,
) -> list[dict[str, Any]]:
    """
    Return the objects that a parameter file describes.

    :param document: its content.
    :raises DeployError: if they cannot be made from it.
    """
    from laimr_ros.cli import manifests
    bridge = section(document, 'kubernetes_bridge')
    worker = section(document, 'worker')
    settings = section(document, 'deploy')
    if not bridge.get('pool_names'):
        raise DeployError(
            'the parameter file has no kubernetes_bridge with pool_names; say which pools there '
            'are, as config/kubernetes.yaml does')
    if not worker.get('models'):
        raise DeployError(
            'the parameter file has no worker with models; say what the pods are to serve, as '
            'config/kubernetes.yaml does')
    pools = [
        _pool(name, bridge, settings, image) for name in bridge['pool_names']]
    deployment = manifests.Deployment(
        namespace=namespace or bridge.get('namespace') or 'laimr',
        pools=pools, worker=worker, bridge=bridge,
        bridge_image=bridge_image or settings.get('bridge_image', 'laimr-bridge:latest'),
        ros_domain_id=int(settings.get('ros_domain_id', 0)),
        bridge_env={
            str(key): str(value) for key, value in (settings.get('bridge_env') or {}).items()},
        lease=bridge.get('lease_name', manifests.LEASE) or manifests.LEASE,
        hpa_tolerance=str(settings.get('hpa_tolerance', '0')))
    _sound(wrong_namespace('kubernetes_bridge.namespace', str(deployment.namespace)))
    _sound(wrong_image('deploy.bridge_image', str(deployment.bridge_image)))
    for pool in pools:
        _sound(wrong_image(f'deploy.pools.{pool.name}.image', str(pool.image)))
    objects = [manifests.namespace_object(deployment)]
    for pool in pools:
        objects += manifests.worker_objects(deployment, pool)
        objects += manifests.scaler_objects(deployment, pool)
    objects += manifests.access_objects(deployment)
    if with_bridge:
        objects += manifests.bridge_objects(deployment)
        if certificate and any(pool.drive == 'external_metric' for pool in pools):
            objects += _certificate(deployment.namespace, 365)
        if monitoring:
            objects.append(manifests.service_monitor(deployment))
    return objects


def section(document: Any, node: str) -> dict[str, Any]:
    """
    Return what a parameter file holds for a node, whatever its namespace; nested, as written.

    :raises DeployError: if the file is none.
    """
    if not isinstance(document, Mapping):
        raise DeployError('the parameter file holds no sections (NODE: ros__parameters: ...)')
    found: dict[str, Any] = {}
    for key, value in document.items():
        if not isinstance(value, Mapping):
            continue
        if 'ros__parameters' not in value:
            found.update(section(value, node))
        elif str(key).rpartition('/')[2] == node:
            found.update(value['ros__parameters'] or {})
    return found


def _pool(
    name: str, bridge: Mapping[str, Any], settings: Mapping[str, Any], image: str | None,
) -> Any:
    from laimr_ros.cli import manifests
    from laimr_ros.cluster.kubernetes.pool import Drive, parse_workload
    mine = (bridge.get('pools') or {}).get(name) or {}
    given = (settings.get('pools') or {}).get(name) or {}
    text = mine.get('workload') or f'laimr-worker-{name.replace("_", "-").lower()}'
    try:
        workload = parse_workload(text, '')
    except ValueError as error:
        raise DeployError(f'pools.{name}.workload: {error}') from None
    if workload.kind != 'deployment':
        raise DeployError(
            f'pools.{name}.workload: {text!r}: only deployments are made here; apply your own '
            f'{workload.kind}, or name a deployment')
    drive = str(mine.get('drive', 'scale'))
    if drive not in {d.value for d in Drive}:
        raise DeployError(
            f'pools.{name}.drive: {drive!r} is unknown; use one of '
            f'{", ".join(d.value for d in Drive)}')
    return manifests.PoolManifest(
        name=name, workload=workload.name, drive=drive,
        min_replicas=int(mine.get('min_replicas', 1)),
        max_replicas=int(mine.get('max_replicas', 1)),
        image=image or given.get('image') or settings.get('image', 'laimr-worker:latest'),
        cpu=str(given.get('cpu', '3')), memory=str(given.get('memory', '4Gi')),
        gpus=int(given.get('gpus', 0)))


def _certificate(namespace: str, days: int) -> list[dict[str, Any]]:
    from laimr_ros.cli import manifests
    from laimr_ros.cluster.kubernetes.certificates import make_certificates
    name = f'{manifests.BRIDGE}.{namespace}.svc'
    made = make_certificates((name, f'{name}.cluster.local', manifests.BRIDGE), days)

    def encoded(content: bytes) -> str:
        return base64.b64encode(content).decode()

    return [
        manifests.tls_secret(namespace, encoded(made.certificate), encoded(made.key)),
        manifests.api_service(namespace, encoded(made.authority)),
    ]


def _read(name: str) -> Any:
    import yaml
    try:
        return yaml.safe_load(Path(name).read_text(encoding='utf-8'))
    except OSError as error:
        raise DeployError(f'parameter file {name!r}: {error.strerror}') from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise DeployError(
            f'parameter file {name!r} is no YAML: {" ".join(str(error).split())}') from None


def _represent_text(dumper: Any, text: str) -> Any:
    """Write text of several lines as such."""
    style = '|' if '\n' in text else None
    return dumper.represent_scalar('tag:yaml.org,2002:str', text, style=style)
