"""KEDA's external scaler: it asks, or is told, how many replicas there should be."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
import logging
from typing import Any, TYPE_CHECKING

from google.protobuf import (  # type: ignore[import-untyped]
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)
import grpc  # type: ignore[import-untyped]
from laimr_ros.cluster.kubernetes.board import Board
from laimr_ros.cluster.kubernetes.certificates import ServingCertificate
from laimr_ros.cluster.kubernetes.listen import parse_listen

if TYPE_CHECKING:
    from laimr_ros.cluster.kubernetes.replicas import ClusterConfig

_logger = logging.getLogger(__name__)

SERVICE = 'externalscaler.ExternalScaler'
METRIC = 'laimr_desired_replicas'

_Field = descriptor_pb2.FieldDescriptorProto
_STRING, _INT64, _DOUBLE, _BOOL = (
    _Field.TYPE_STRING, _Field.TYPE_INT64, _Field.TYPE_DOUBLE, _Field.TYPE_BOOL)
# The messages of KEDA's externalscaler.proto: name, then its fields in the order of their numbers
# (None where a number is not used here). A string names a message; a leading * means repeated.
_MESSAGES: dict[str, tuple[tuple[str, Any], ...]] = {
    'MetadataEntry': (('key', _STRING), ('value', _STRING)),
    'ScaledObjectRef': (
        ('name', _STRING), ('namespace', _STRING), ('scalerMetadata', '*MetadataEntry')),
    'IsActiveResponse': (('result', _BOOL),),
    'MetricSpec': (
        ('metricName', _STRING), ('targetSize', _INT64), ('targetSizeFloat', _DOUBLE)),
    'GetMetricSpecResponse': (('metricSpecs', '*MetricSpec'),),
    'GetMetricsRequest': (('scaledObjectRef', 'ScaledObjectRef'), ('metricName', _STRING)),
    'MetricValue': (
        ('metricName', _STRING), ('metricValue', _INT64), ('metricValueFloat', _DOUBLE)),
    'GetMetricsResponse': (('metricValues', '*MetricValue'),),
}


def _make_messages() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(
        name='laimr_ros/externalscaler.proto', package='externalscaler', syntax='proto3')
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields, 1):
            repeated = isinstance(kind, str) and kind.startswith('*')
            added = message.field.add(
                name=field, number=number,
                label=_Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL)
            if isinstance(kind, str):
                added.type = _Field.TYPE_MESSAGE
                added.type_name = f'.externalscaler.{kind.lstrip("*")}'
            else:
                added.type = kind
    # A pool of our own: another copy of KEDA's file in this process is none of our business. A
    # map is, on the wire, a repeated message of key and value.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f'externalscaler.{name}'))
        for name in _MESSAGES}


MESSAGES = _make_messages()


class KedaScaler:
    """
    Serve the numbers of replicas wanted, each as a metric whose target is 1 a replica.

    The ``metadata`` of a ScaledObject's trigger names the pool: ``pool: edge``. A number that is
    too old is answered with an error, upon which KEDA holds.

    :param board: the numbers.
    :param pools: the pools offered, with their namespaces.
    :param config: where to listen, and with which certificate.
    """

    def __init__(self, board: Board, pools: Mapping[str, str], config: ClusterConfig) -> None:
        self._board = board
        self._pools = dict(pools)
        self._host, self._port = parse_listen(config.keda_listen, 'keda_listen')
        self._certificate = None
        if config.tls_cert_file:
            self._certificate = ServingCertificate(
                config.tls_cert_file, config.tls_key_file, ('laimr-bridge',))
        self._server: grpc.aio.Server | None = None

    @property
    def port(self) -> int:
        """Return the port that is listened on."""
        return self._port

    async def start(self) -> None:
        """Listen. :raises ValueError: if that is not possible."""
        server = grpc.aio.server()
        unary, stream = (
            grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler)

        def handler(make: Any, method: Any, request: str, reply: str) -> Any:
            return make(
                method, request_deserializer=MESSAGES[request].FromString,
                response_serializer=MESSAGES[reply].SerializeToString)

        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {
            'IsActive': handler(unary, self._is_active, 'ScaledObjectRef', 'IsActiveResponse'),
            'StreamIsActive': handler(
                stream, self._stream_is_active, 'ScaledObjectRef', 'IsActiveResponse'),
            'GetMetricSpec': handler(
                unary, self._get_metric_spec, 'ScaledObjectRef', 'GetMetricSpecResponse'),
            'GetMetrics': handler(
                unary, self._get_metrics, 'GetMetricsRequest', 'GetMetricsResponse'),
        }),))
        host = f'[{self._host}]' if ':' in self._host else self._host
        address = f'{host}:{self._port}'
        try:
            if self._certificate is None:
                self._port = server.add_insecure_port(address)
            else:
                self._port = server.add_secure_port(address, self._credentials())
        except RuntimeError:
            raise ValueError(
                f'keda_listen: {address} cannot be listened on; choose another port') from None
        await server.start()
        self._server = server
        _logger.info('KEDA is served on %s:%d', self._host, self._port)

    async def close(self) -> None:
        """Stop."""
        if self._server is not None:
            await self._server.stop(0.2)

    def _credentials(self) -> grpc.ServerCredentials:
        certificate = self._certificate
        assert certificate is not None

        def configuration() -> Any:
            return grpc.ssl_server_certificate_configuration([certificate.pem()])

        def renewed() -> Any:
            # Asked at every connection; None keeps what there is.
            return configuration() if certificate.changed() else None

        return grpc.dynamic_ssl_server_credentials(configuration(), renewed)

    async def _is_active(self, request: Any, context: Any) -> Any:
        number = await self._number(request, context)
        return MESSAGES['IsActiveResponse'](result=number > 0)

    async def _stream_is_active(self, request: Any, context: Any) -> AsyncIterator[Any]:
        pool = await self._pool(request, context)
        said: bool | None = None
        while True:
            news = self._board.news()
            number = self._board.get(pool)
            # Silence while nothing is known: KEDA then goes by what it asks.
            if number is not None and (number > 0) is not said:
                said = number > 0
                yield MESSAGES['IsActiveResponse'](result=said)
            await news.wait()

    async def _get_metric_spec(self, request: Any, context: Any) -> Any:
        await self._pool(request, context)
        return MESSAGES['GetMetricSpecResponse'](metricSpecs=[
            MESSAGES['MetricSpec'](metricName=METRIC, targetSize=1, targetSizeFloat=1.0)])

    async def _get_metrics(self, request: Any, context: Any) -> Any:
        number = await self._number(request.scaledObjectRef, context)
        return MESSAGES['GetMetricsResponse'](metricValues=[MESSAGES['MetricValue'](
            metricName=request.metricName or METRIC, metricValue=number,
            metricValueFloat=float(number))])

    async def _pool(self, reference: Any, context: Any) -> str:
        metadata = {entry.key: entry.value for entry in reference.scalerMetadata}
        pool: str = metadata.get('pool', '')
        if pool not in self._pools:
            await context.abort(
                grpc.StatusCode.NOT_FOUND,
                f'metadata of {reference.namespace}/{reference.name} names pool {pool!r}; use one '
                f'of {sorted(self._pools)}')
        return pool

    async def _number(self, reference: Any, context: Any) -> int:
        pool = await self._pool(reference, context)
        number = self._board.get(pool)
        if number is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, self._board.why_not(pool))
        assert number is not None
        return number


__all__ = ['MESSAGES', 'METRIC', 'SERVICE', 'KedaScaler']
