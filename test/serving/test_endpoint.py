"""Endpoints, written by people."""

from __future__ import annotations

from laimr_ros.serving.endpoint import Endpoint, EndpointError, parse
import pytest


@pytest.mark.parametrize('text, expected', [
    ('edge-1:8500', Endpoint('edge-1', 8500)),
    ('10.0.0.7:1', Endpoint('10.0.0.7', 1)),
    ('grpc://edge-1.local:8500', Endpoint('edge-1.local', 8500)),
    ('grpc://edge-1:8500/', Endpoint('edge-1', 8500)),
    ('[::1]:8500', Endpoint('::1', 8500)),
    ('unix:/run/x.sock', Endpoint(path='/run/x.sock')),
    ('unix:///run/x.sock', Endpoint(path='/run/x.sock')),
])
def test_forms(text, expected):
    assert parse(text) == expected
    assert parse(str(expected)) == expected, 'what is written can be read again'


@pytest.mark.parametrize('text, hint', [
    ('', 'host:port'), ('edge', 'host:port'), ('edge:', 'port'), (':8500', 'host:port'),
    ('edge:http', 'port'), ('edge:70000', '65535'), ('edge:-1', 'port'), ('edge:0', '1 to 65535'),
    ('edge:٣', 'port'),
    ('http://edge:8500', 'gRPC'), ('grpc://edge:8500/v2', 'understood|port'),
    ('::1:8500', 'ipv6'), ('a:b:1', 'colons'), ('unix:', 'absolute'), ('unix:x.sock', 'absolute'),
    ('unix:/', 'absolute'), ('unix:/' + 107 * 'x', '107'), ('ed ge:1', 'host:port'),
])
def test_errors_name_the_endpoint_and_the_fix(text, hint):
    with pytest.raises(EndpointError, match=hint) as caught:
        parse(text)
    assert repr(text) in str(caught.value)


def test_a_path_may_be_as_long_as_the_kernel_takes():
    assert parse('unix:/' + 106 * 'x').path == '/' + 106 * 'x'
    with pytest.raises(EndpointError, match='108 bytes'):
        parse('unix:/' + 105 * 'x' + 'é')


def test_only_who_listens_may_leave_the_port_open():
    assert parse('0.0.0.0:0', listening=True).port == 0
