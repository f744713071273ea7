"""The command that checks a machine: what it finds, how it says so, and that it never fails."""

from __future__ import annotations

import argparse
from http.server import BaseHTTPRequestHandler, HTTPServer
import json
import os
from pathlib import Path
import socket
import subprocess
import sys
import threading

from laimr_ros.cli import doctor, machine_checks, software_checks
from laimr_ros.cli.findings import as_json, as_text, Finding, note, ok, Verdict, wrong
import pytest

CHECKOUT = Path(__file__).resolve().parents[2]

FINDINGS = [
    ok('Python', '3.11.7'),
    note('clock', 'not synchronised', 'install chrony'),
    wrong('disk', 'full ' * 40, 'free some'),
]


# -- what is printed -------------------------------------------------------------------------


def test_text_names_each_finding_and_its_remedy_within_the_width():
    lines = as_text(FINDINGS, colour=False, width=80).splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert lines[0].split() == ['OK', 'Python', '3.11.7']
    assert lines[1].split()[:2] == ['NOTE', 'clock']
    assert lines[2].strip() == '-> install chrony'
    assert lines[-1] == 'not usable yet: 1 to mend (WRONG above), 1 note'


def test_text_without_anything_wrong_says_usable():
    text = as_text(FINDINGS[:2], colour=False, width=80)
    assert text.splitlines()[-1] == 'usable: nothing to mend, 1 note'
    assert '\033' not in text
    assert '\033' in as_text(FINDINGS[:2], colour=True, width=80)


def test_json_holds_the_same():
    content = json.loads(as_json(FINDINGS))
    assert content['usable'] is False
    assert content['findings'][1] == {
        'name': 'clock', 'verdict': 'note', 'detail': 'not synchronised',
        'remedy': 'install chrony'}


@pytest.mark.parametrize(('findings', 'status'), [(FINDINGS[:2], 0), (FINDINGS, 1)])
def test_exit_status_says_whether_something_is_wrong(monkeypatch, capsys, findings, status):
    monkeypatch.setattr(doctor, 'CHECKS', tuple((lambda f=f: f) for f in findings))
    assert doctor.run(argparse.Namespace(json=True)) == status
    assert len(json.loads(capsys.readouterr().out)['findings']) == len(findings)


def test_a_check_that_fails_itself_does_not_hide_the_others(monkeypatch):
    def some_check():
        raise RuntimeError('surprise')

    monkeypatch.setattr(doctor, 'CHECKS', (some_check, lambda: FINDINGS[0]))
    broken, fine = doctor.examine()
    assert broken.verdict is Verdict.NOTE
    assert broken.name == 'some check'
    assert 'surprise' in broken.detail
    assert fine == FINDINGS[0]


def test_it_works_without_any_package():
    # The interpreter that this environment was made from has neither rclpy nor torch; -I and -S
    # keep it from finding what the user may have installed.
    code = (
        'import sys; sys.path.insert(0, sys.argv[1])\n'
        'from laimr_ros.cli import software_checks\n'
        'from laimr_ros.cli.main import main\n'
        'software_checks.sys.executable = "/bin/false"\n'
        'sys.exit(main(["doctor", "--json"]))')
    done = subprocess.run(
        [sys._base_executable, '-I', '-S', '-c', code, str(CHECKOUT)],
        env={'PATH': os.environ['PATH'], 'HOME': '/nonexistent'},
        capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 1, done.stderr
    assert 'Traceback' not in done.stderr
    findings = {f['name']: f for f in json.loads(done.stdout)['findings']}
    assert findings['ROS']['verdict'] == 'wrong'
    assert 'make setup' in findings['ROS']['remedy']
    assert findings['torch']['verdict'] == 'note'
    assert findings['cluster']['verdict'] == 'note'


# -- software --------------------------------------------------------------------------------


def test_this_environment_passes():
    for check in (software_checks.python, software_checks.messages, software_checks.middleware):
        finding = check()
        assert finding.verdict is Verdict.OK, finding


def test_vision_msgs_with_another_hash_is_wrong(tmp_path, monkeypatch):
    folder = tmp_path / 'share' / 'vision_msgs' / 'msg'
    folder.mkdir(parents=True)
    for name in software_checks.TYPE_HASHES:
        rows = [{'type_name': f'vision_msgs/msg/{name}', 'hash_string': 'RIHS01_beef'}]
        (folder / f'{name}.json').write_text(json.dumps({'type_hashes': rows}))
    monkeypatch.setenv('AMENT_PREFIX_PATH', str(tmp_path))
    finding = software_checks.messages()
    assert finding.verdict is Verdict.WRONG
    assert 'RIHS01_beef' in finding.detail


def test_middleware_that_is_not_installed_is_wrong(monkeypatch):
    monkeypatch.setenv('RMW_IMPLEMENTATION', 'rmw_absent_cpp')
    finding = software_checks.middleware()
    assert finding.verdict is Verdict.WRONG
    assert 'RMW_IMPLEMENTATION=rmw_absent_cpp' in finding.detail
    assert 'unset RMW_IMPLEMENTATION' in finding.remedy


@pytest.mark.parametrize(
    ('variables', 'verdict'),
    [
        ({'ROS_DOMAIN_ID': '7'}, Verdict.OK),
        ({}, Verdict.OK),
        ({'ROS_DOMAIN_ID': 'seven'}, Verdict.WRONG),
        ({'ROS_DOMAIN_ID': '233'}, Verdict.WRONG),
        ({'ROS_DOMAIN_ID': '120'}, Verdict.NOTE),
        ({'ROS_LOCALHOST_ONLY': '1'}, Verdict.NOTE),
        ({'ROS_AUTOMATIC_DISCOVERY_RANGE': 'OFF'}, Verdict.NOTE),
    ],
)
def test_domain(monkeypatch, variables, verdict):
    for name in ('ROS_DOMAIN_ID', 'ROS_LOCALHOST_ONLY', 'ROS_AUTOMATIC_DISCOVERY_RANGE'):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert software_checks.domain().verdict is verdict


# -- machine ---------------------------------------------------------------------------------


def test_a_taken_port_is_noted():
    with socket.socket() as server:
        try:
            server.bind(('0.0.0.0', machine_checks.WORKER_PORT))
        except OSError:
            pass  # Somebody else has it: just as good.
        else:
            server.listen()
        finding = machine_checks.ports()
    assert finding.verdict is Verdict.NOTE
    assert str(machine_checks.WORKER_PORT) in finding.detail


@pytest.mark.parametrize(
    ('size', 'verdict'), [('212992\n', Verdict.NOTE), ('16777216\n', Verdict.OK)])
def test_small_network_buffer_is_noted(tmp_path, monkeypatch, size, verdict):
    file = tmp_path / 'rmem_max'
    file.write_text(size)
    monkeypatch.setattr(machine_checks, 'RMEM_MAX', file)
    finding = machine_checks.receive_buffer()
    assert finding.verdict is verdict
    assert bool(finding.remedy) == (verdict is Verdict.NOTE)


def test_shared_memory_that_cannot_be_written_is_wrong(tmp_path, monkeypatch):
    monkeypatch.setattr(machine_checks, 'SHM', tmp_path / 'absent')
    finding = machine_checks.shared_memory()
    assert finding.verdict is Verdict.WRONG
    assert '--ipc=host' in finding.remedy


def test_container_limit_on_cores_counts(tmp_path, monkeypatch):
    file = tmp_path / 'cpu.max'
    file.write_text('50000 100000\n')
    monkeypatch.setattr(machine_checks, 'CGROUP_CPU', file)
    finding = machine_checks.processor()
    assert finding.verdict is Verdict.NOTE
    assert finding.detail.startswith('0.5 cores (container limit)')


@pytest.mark.parametrize(
    ('free', 'verdict'), [(10**8, Verdict.WRONG), (10**9, Verdict.NOTE), (10**11, Verdict.OK)])
def test_disk(monkeypatch, free, verdict):
    monkeypatch.setattr(
        machine_checks.shutil, 'disk_usage', lambda _: argparse.Namespace(free=free))
    assert machine_checks.disk().verdict is verdict


def test_memory(tmp_path, monkeypatch):
    file = tmp_path / 'meminfo'
    monkeypatch.setattr(machine_checks, 'MEMINFO', file)
    for available_kb, verdict in ((16 * 2**20, Verdict.OK), (2**20, Verdict.NOTE)):
        file.write_text(f'MemTotal: 99 kB\nMemAvailable: {available_kb} kB\n')
        assert machine_checks.memory().verdict is verdict


def test_few_open_files_are_noted(monkeypatch):
    monkeypatch.setattr(machine_checks.resource, 'getrlimit', lambda _: (256, 4096))
    finding = machine_checks.open_files()
    assert finding.verdict is Verdict.NOTE
    assert 'ulimit -n 4096' in finding.remedy


@pytest.mark.parametrize(
    ('state', 'verdict'),
    [((True, 0.004), Verdict.OK), ((False, 16.0), Verdict.NOTE), (None, Verdict.NOTE)])
def test_clock(monkeypatch, state, verdict):
    monkeypatch.setattr(machine_checks, '_kernel_clock', lambda: state)
    monkeypatch.setattr(machine_checks, '_chrony_offset', lambda: '')
    finding = machine_checks.clock()
    assert finding.verdict is verdict
    assert '/diagnostics' in finding.detail


def test_kernel_clock_is_read():
    state = machine_checks._kernel_clock()
    if state is None:
        pytest.skip('this sandbox does not let programs read the state of the kernel clock')
    assert isinstance(state[0], bool)
    assert state[1] >= 0.0


# -- cluster ---------------------------------------------------------------------------------


@pytest.fixture
def kubeconfig(tmp_path, monkeypatch):
    """Return a function that configures a cluster at an address."""
    monkeypatch.delenv('KUBERNETES_SERVICE_HOST', raising=False)

    def configure(server: str) -> None:
        file = tmp_path / 'config'
        file.write_text(json.dumps({
            'apiVersion': 'v1', 'kind': 'Config', 'current-context': 'test',
            'contexts': [{'name': 'test', 'context': {'cluster': 'test', 'user': 'test'}}],
            'clusters': [{'name': 'test', 'cluster': {'server': server}}],
            'users': [{'name': 'test', 'user': {}}],
        }))
        monkeypatch.setenv('KUBECONFIG', str(file))

    return configure


def cluster() -> Finding:
    (finding,) = machine_checks.cluster()
    return finding


def test_no_cluster_is_only_noted(tmp_path, monkeypatch):
    monkeypatch.delenv('KUBECONFIG', raising=False)
    monkeypatch.delenv('KUBERNETES_SERVICE_HOST', raising=False)
    monkeypatch.setenv('HOME', str(tmp_path))
    assert cluster().verdict is Verdict.NOTE


def test_cluster_that_answers_is_named(kubeconfig):
    class Api(BaseHTTPRequestHandler):
        def do_GET(self):
            body = json.dumps({
                'major': '1', 'minor': '37', 'gitVersion': 'v1.37.0', 'gitCommit': 'x',
                'gitTreeState': 'clean', 'buildDate': 'now', 'goVersion': 'go', 'compiler': 'gc',
                'platform': 'linux/amd64'}).encode()
            self.send_response(200)
            self.send_header('Content-Type', 'application/json')
            self.send_header('Content-Length', str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = HTTPServer(('127.0.0.1', 0), Api)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        kubeconfig(f'http://127.0.0.1:{server.server_port}')
        finding = cluster()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert finding.verdict is Verdict.OK, finding
    assert 'v1.37.0' in finding.detail


def test_cluster_that_does_not_answer_is_wrong(kubeconfig):
    with socket.socket() as closed:
        closed.bind(('127.0.0.1', 0))
        kubeconfig(f'http://127.0.0.1:{closed.getsockname()[1]}')
        finding = cluster()
    assert finding.verdict is Verdict.WRONG
    assert 'kubectl' in finding.remedy


def test_kubeconfig_that_cannot_be_read_is_wrong(tmp_path, monkeypatch):
    monkeypatch.delenv('KUBERNETES_SERVICE_HOST', raising=False)
    monkeypatch.setenv('KUBECONFIG', str(tmp_path / 'absent'))
    finding = cluster()
    assert finding.verdict is Verdict.WRONG
    assert 'absent' in finding.detail
