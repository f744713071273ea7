"""Who we are to a cluster: a kubeconfig's context, or the pod's own service account."""

from __future__ import annotations

from dataclasses import dataclass
import os
from pathlib import Path
import ssl
from typing import Any
from urllib.parse import urlsplit

from laimr_ros.cluster.kubernetes.errors import CredentialsError

_ACCOUNT = Path('/var/run/secrets/kubernetes.io/serviceaccount')


@dataclass(frozen=True)
class Source:
    """
    Where credentials come from.

    :param kubeconfig: file; empty for ``$KUBECONFIG`` or ``~/.kube/config``, or, within a pod that
        has neither, for the pod's service account.
    :param context: of the kubeconfig; empty for its current one.
    """

    kubeconfig: str = ''
    context: str = ''


@dataclass
class Credentials:
    """
    One reading of a source.

    :param server: base address of the API server.
    :param namespace: where the source says that we are at home.
    :param tls: for the connection; None for plain HTTP.
    """

    server: str
    namespace: str
    tls: ssl.SSLContext | None
    server_hostname: str | None
    proxy: str | None
    _configuration: Any

    def headers(self) -> dict[str, str]:
        """
        Return the headers that say who we are. May run the kubeconfig's program, so may block.

        :raises CredentialsError: if they cannot be had.
        """
        try:
            settings = self._configuration.auth_settings()
        except Exception as error:  # plugins of every kind raise every kind
            raise CredentialsError(f'credentials cannot be renewed: {_line(error)}') from None
        return {
            setting['key']: setting['value']
            for setting in settings.values() if setting.get('in') == 'header' and setting['value']
        }


def load(source: Source) -> Credentials:
    """
    Read the credentials. May block: a kubeconfig may name a program that is asked.

    :raises CredentialsError: if there are none, or they cannot be used.
    """
    # It takes a second to import, which nobody without a cluster should spend.
    from kubernetes import client
    from kubernetes import config as untyped
    config: Any = untyped
    configuration = client.Configuration()
    path = source.kubeconfig or os.environ.get('KUBECONFIG', '')
    default = Path('~/.kube/config').expanduser()
    in_cluster = (
        not path and not source.context
        and not default.exists() and 'KUBERNETES_SERVICE_HOST' in os.environ
    )
    namespace = ''
    try:
        if in_cluster:
            config.load_incluster_config(client_configuration=configuration)
            if (_ACCOUNT / 'namespace').exists():
                namespace = (_ACCOUNT / 'namespace').read_text(encoding='utf-8').strip()
        else:
            files = path or str(default)
            _check_files(files)
            contexts, current = config.list_kube_config_contexts(files)
            chosen = _choose(source.context, contexts, current, files)
            namespace = (chosen.get('context') or {}).get('namespace') or ''
            config.load_kube_config(
                files, context=chosen['name'], client_configuration=configuration,
                persist_config=False)
    except CredentialsError:
        raise
    except Exception as error:  # YAML, certificates, programs: many kinds
        where = 'service account' if in_cluster else f'kubeconfig {path or str(default)!r}'
        raise CredentialsError(
            f'{where} cannot be used: {_line(error)}; `kubectl version` must work with it first'
        ) from None
    return Credentials(
        configuration.host.rstrip('/'), namespace or 'default', _tls(configuration),
        configuration.tls_server_name or None, _proxy(configuration), configuration)


def _check_files(files: str) -> None:
    names = [name for name in files.split(os.pathsep) if name]
    if not any(Path(name).expanduser().exists() for name in names):
        raise CredentialsError(
            f'kubeconfig {files!r} does not exist, and this is no pod of a cluster; name a '
            'kubeconfig with the parameter kubeconfig or the variable KUBECONFIG')


def _choose(wanted: str, contexts: Any, current: Any, files: str) -> dict[str, Any]:
    if not wanted:
        return dict(current)
    for context in contexts:
        if context['name'] == wanted:
            return dict(context)
    known = ', '.join(sorted(context['name'] for context in contexts)) or 'none'
    raise CredentialsError(
        f'context {wanted!r} is not in kubeconfig {files!r}; it has: {known}')


def _tls(configuration: Any) -> ssl.SSLContext | None:
    if not configuration.host.startswith('https:'):
        return None
    try:
        context = ssl.create_default_context(
            cafile=configuration.ssl_ca_cert or None,
            cadata=configuration.ca_cert_data or None)
        if not configuration.verify_ssl:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if configuration.cert_file:
            context.load_cert_chain(configuration.cert_file, configuration.key_file)
    except (OSError, ssl.SSLError) as error:
        raise CredentialsError(
            f'certificates for {configuration.host} cannot be used: {_line(error)}') from None
    return context


def _proxy(configuration: Any) -> str | None:
    proxy = configuration.proxy
    if not proxy:
        return None
    host = urlsplit(configuration.host).hostname or ''
    for name in (configuration.no_proxy or '').split(','):
        bare = name.strip().lstrip('.')
        if bare and (bare == '*' or host == bare or host.endswith('.' + bare)):
            return None
    return str(proxy)


def _line(error: BaseException) -> str:
    return ' '.join(str(error).split()) or type(error).__name__
