"""``laimr deploy``: objects that a cluster would refuse are not printed."""

from __future__ import annotations

from pathlib import Path
import subprocess
import sys

from laimr_ros.cli.kubernetes_names import wrong_image, wrong_namespace
from laimr_ros.cli.main import main
import pytest

ROOT = Path(__file__).parents[2]
PARAMETERS = str(ROOT / 'config' / 'kubernetes.yaml')


@pytest.mark.parametrize('action, arguments, says', [
    ('render', ['--namespace', 'Bad_NS!'], "--namespace 'Bad_NS!' is no name of a namespace"),
    ('render', ['--namespace', 'n' * 80], 'give 1 to 63'),
    ('render', ['--namespace', ''], "--namespace ''"),
    ('render', ['--image', "''"], '--image "\'\'" is no name of an image'),
    ('render', ['--image', ''], "--image ''"),
    ('render', ['--bridge-image', 'x:y:z'], "--bridge-image 'x:y:z' is no name of an image"),
    ('certificate', ['--namespace', 'A'], "--namespace 'A'"),
    ('certificate', ['--days', '0'], '--days 0; give 1 to 3650'),
    ('certificate', ['--days', '9' * 12], 'give 1 to 3650'),
])
def test_wrong_names_are_refused(
    action: str, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str],
) -> None:
    """One line with option and rule, status 2, no objects."""
    file = ['--params-file', PARAMETERS] if action == 'render' else []
    assert main(['deploy', action, *file, *arguments]) == 2
    shown = capsys.readouterr()
    assert says in shown.err and shown.err.count('\n') == 1 and not shown.out


@pytest.mark.parametrize('old, new, says', [
    ('namespace: laimr', 'namespace: La_imr', "kubernetes_bridge.namespace 'La_imr'"),
    ('bridge_image: laimr-bridge', 'bridge_image: Laimr', "deploy.bridge_image 'Laimr:latest'"),
    (' image: laimr-worker:latest', ' image: a b', "deploy.pools.edge.image 'a b'"),
])
def test_wrong_names_in_a_file_are_refused(
    old: str, new: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    """Named by their parameter."""
    text = Path(PARAMETERS).read_text()
    assert old in text
    file = tmp_path / 'k.yaml'
    file.write_text(text.replace(old, new, 1))
    assert main(['deploy', 'render', '--params-file', str(file)]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize('name', [
    'x', 'laimr-worker:latest', 'localhost:5000/x:1.0', 'ghcr.io/me/a__b/c-d:v1',
    'a.b/c@sha256:' + '0' * 64, 'Registry.Example/x', 'docker.io/library/x:1@sha256:' + 'a' * 64])
def test_names_of_images_that_are_taken(name: str) -> None:
    """As registries have them."""
    assert wrong_image('--image', name) == ''


@pytest.mark.parametrize('name', ['X', 'a b', 'x:', ':x', 'x:y:z', 'a/', '/a', 'x@sha256:1', "''"])
def test_names_of_images_that_are_not(name: str) -> None:
    """Each is named."""
    assert repr(name) in wrong_image('--image', name)


def test_namespaces() -> None:
    """Labels of DNS."""
    for name in ('a', '0', 'a-b', 'n' * 63):
        assert wrong_namespace('--namespace', name) == ''
    for name in ('', '-a', 'a-', 'a.b', 'A', 'n' * 64, 'a\n'):
        assert repr(name) in wrong_namespace('--namespace', name)


def test_a_full_device_is_told() -> None:
    """Half of the objects are no deployment: status 1, one line, and no word of Python's."""
    with open('/dev/full', 'w') as full:
        done = subprocess.run(
            [sys.executable, '-m', 'laimr_ros.cli.main', 'deploy', 'render', '--params-file',
             PARAMETERS], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1
    assert 'No space left on device' in done.stderr and done.stderr.count('\n') == 1
