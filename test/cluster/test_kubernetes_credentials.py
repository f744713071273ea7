"""Who the bridge is to a cluster."""

from __future__ import annotations

import base64
import json
from pathlib import Path
import sys
from typing import Any

from kubernetes.config import incluster_config
from laimr_ros.cluster.kubernetes import credentials
from laimr_ros.cluster.kubernetes.certificates import make_certificates, ServingCertificate
from laimr_ros.cluster.kubernetes.credentials import load, Source
from laimr_ros.cluster.kubernetes.errors import CredentialsError, from_reply
from laimr_ros.cluster.kubernetes.listen import parse_listen
import pytest
import yaml


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Have no credentials but those that a test makes."""
    monkeypatch.setenv('HOME', str(tmp_path / 'home'))
    for name in ('KUBECONFIG', 'KUBERNETES_SERVICE_HOST', 'KUBERNETES_SERVICE_PORT'):
        monkeypatch.delenv(name, raising=False)


def kubeconfig(path: Path, user: dict[str, Any], **cluster: Any) -> str:
    """Write a kubeconfig of two contexts; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({
        'apiVersion': 'v1', 'kind': 'Config', 'current-context': 'near',
        'clusters': [
            {'name': 'near', 'cluster': {'server': 'http://near:80/', **cluster}},
            {'name': 'far', 'cluster': {'server': 'http://far:80'}}],
        'users': [{'name': 'me', 'user': user}],
        'contexts': [
            {'name': 'near', 'context': {'cluster': 'near', 'user': 'me', 'namespace': 'robots'}},
            {'name': 'far', 'context': {'cluster': 'far', 'user': 'me'}}]}))
    return str(path)


def test_a_token_of_the_current_context(tmp_path: Path) -> None:
    """Server, namespace and header."""
    found = load(Source(kubeconfig(tmp_path / 'k', {'token': 'abc'})))
    assert (found.server, found.namespace) == ('http://near:80', 'robots')
    assert found.headers() == {'authorization': 'Bearer abc'}


def test_another_context_and_the_places_where_it_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """~/.kube/config, or $KUBECONFIG before it."""
    kubeconfig(tmp_path / 'home/.kube/config', {'token': 'home'})
    assert load(Source()).headers() == {'authorization': 'Bearer home'}
    monkeypatch.setenv('KUBECONFIG', kubeconfig(tmp_path / 'k', {'token': 'env'}))
    found = load(Source(context='far'))
    assert (found.server, found.namespace) == ('http://far:80', 'default')
    assert found.headers() == {'authorization': 'Bearer env'}


def test_a_program_that_gives_the_token(tmp_path: Path) -> None:
    """As cloud providers have it."""
    reply = json.dumps({
        'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential',
        'status': {'token': 'made'}})
    found = load(Source(kubeconfig(tmp_path / 'k', {'exec': {
        'apiVersion': 'client.authentication.k8s.io/v1', 'command': sys.executable,
        'args': ['-c', f'print({reply!r})'], 'interactiveMode': 'Never'}})))
    assert found.headers() == {'authorization': 'Bearer made'}


def test_within_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service account, if there is no kubeconfig."""
    made = make_certificates(('kubernetes',))
    for name, content in (
            ('token', b'mounted'), ('ca.crt', made.authority), ('namespace', b'laimr\n')):
        (tmp_path / name).write_bytes(content)
    monkeypatch.setenv('KUBERNETES_SERVICE_HOST', '10.0.0.1')
    monkeypatch.setenv('KUBERNETES_SERVICE_PORT', '443')
    monkeypatch.setattr(incluster_config, 'SERVICE_TOKEN_FILENAME', str(tmp_path / 'token'))
    monkeypatch.setattr(incluster_config, 'SERVICE_CERT_FILENAME', str(tmp_path / 'ca.crt'))
    monkeypatch.setattr(credentials, '_ACCOUNT', tmp_path)
    found = load(Source())
    assert (found.server, found.namespace) == ('https://10.0.0.1:443', 'laimr')
    assert found.headers()['authorization'].lower() == 'bearer mounted'
    assert found.tls is not None and found.tls.check_hostname
    # Named, a kubeconfig comes first.
    assert load(Source(kubeconfig(tmp_path / 'k', {'token': 't'}))).server == 'http://near:80'


@pytest.mark.parametrize(
    ('source', 'content', 'words'),
    [
        (Source('none'), None, "kubeconfig 'none' does not exist, and this is no pod"),
        (Source(), None, 'does not exist, and this is no pod'),
        (Source('{file}'), 'a: [', 'cannot be used'),
        (Source('{file}'), '{}', 'cannot be used'),
        (Source('{file}', 'prod'), 'good', "context 'prod' is not in kubeconfig .* far, near"),
        (Source('{file}'), 'bad ca', 'certificates for .* cannot be used|cannot be used'),
    ],
)
def test_what_cannot_be_used_is_one_line(
    tmp_path: Path, source: Source, content: str | None, words: str,
) -> None:
    """It says what, and what to do."""
    path = tmp_path / 'k'
    if content == 'good':
        kubeconfig(path, {'token': 't'})
    elif content == 'bad ca':
        kubeconfig(path, {'token': 't'}, server='https://near', **{
            'certificate-authority-data': base64.b64encode(b'nonsense').decode()})
    elif content is not None:
        path.write_text(content)
    with pytest.raises(CredentialsError, match=words) as caught:
        load(Source(source.kubeconfig.replace('{file}', str(path)), source.context))
    assert '\n' not in str(caught.value)


def test_replies_that_are_errors() -> None:
    """Message, reason and patience, from a Status or from anything else."""
    error = from_reply(429, {'Retry-After': '7'}, b'{"kind": "Status", "message": "a\\n b", '
                       b'"reason": "TooManyRequests", "details": {"retryAfterSeconds": 3}}')
    assert (error.status, error.reason, error.retry_after_s) == (429, 'TooManyRequests', 7.0)
    assert str(error) == 'a b (HTTP 429)'
    error = from_reply(502, {'Retry-After': 'Wed, 21 Oct 2026 07:28:00 GMT'}, b'<html>no</html>')
    assert (str(error), error.retry_after_s) == ('<html>no</html> (HTTP 502)', 0.0)
    assert error.unreachable and not from_reply(404, {}, b'').unreachable
    assert from_reply(429, {'Retry-After': '999999'}, b'').retry_after_s == 60.0


def test_addresses_to_listen_on() -> None:
    """IPv6 in brackets, and one clear line."""
    assert parse_listen('[::1]:80', 'x') == ('::1', 80)
    assert parse_listen(':80', 'x') == ('0.0.0.0', 80)
    for text in ('80', 'a:b', 'a:70000', ''):
        with pytest.raises(ValueError, match='metrics_listen: .* is no address; write HOST:PORT'):
            parse_listen(text, 'metrics_listen')


def test_a_key_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    """Both files are named."""
    one, other = make_certificates(('a',)), make_certificates(('a',))
    (tmp_path / 'c').write_bytes(one.certificate)
    (tmp_path / 'k').write_bytes(other.key)
    with pytest.raises(ValueError, match=r"tls_cert_file '.*/c', tls_key_file '.*/k' cannot be"):
        ServingCertificate(str(tmp_path / 'c'), str(tmp_path / 'k'), ())
