"""Who else sets the replicas of a workload."""

from __future__ import annotations

import time
from typing import Any

from laimr_ros.cluster.kubernetes.access import Access
from laimr_ros.cluster.kubernetes.errors import ApiError
from laimr_ros.cluster.kubernetes.pool import Workload

_AUTOSCALERS = '/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers'
_SCALED_OBJECTS = '/apis/keda.sh/v1alpha1/namespaces/{}/scaledobjects'
# How long it is believed that this cluster has no KEDA.
_NO_KEDA_S = 30.0


class Rivals:
    """
    Look for autoscalers of a workload that would undo what we set.

    :param access: the API server.
    :param workload: whose number is to be ours alone.
    """

    def __init__(self, access: Access, workload: Workload) -> None:
        self._access = access
        self._workload = workload
        self._no_keda_until = 0.0

    async def find(self) -> str:
        """
        Return the first rival, for people; empty if there is none.

        :raises ApiError: if it cannot be known.
        """
        namespace = self._workload.namespace
        scaled = await self._scaled_objects(namespace)
        # First, since KEDA makes an autoscaler of its own, which is nothing to remove by hand.
        for item in scaled:
            reference = (item.get('spec') or {}).get('scaleTargetRef') or {}
            if self._is_ours(reference):
                return f"KEDA's ScaledObject {item['metadata']['name']}"
        found = await self._access.request('GET', _AUTOSCALERS.format(namespace))
        for item in found.get('items') or ():
            if self._is_ours((item.get('spec') or {}).get('scaleTargetRef') or {}):
                return f'HorizontalPodAutoscaler {item["metadata"]["name"]}'
        return ''

    async def _scaled_objects(self, namespace: str) -> list[dict[str, Any]]:
        if time.monotonic() < self._no_keda_until:
            return []
        try:
            found = await self._access.request('GET', _SCALED_OBJECTS.format(namespace))
        except ApiError as error:
            if error.status != 404:
                raise
            self._no_keda_until = time.monotonic() + _NO_KEDA_S
            return []
        return list(found.get('items') or ())

    def _is_ours(self, reference: dict[str, Any]) -> bool:
        # KEDA takes a missing kind for a Deployment.
        kind = str(reference.get('kind') or 'Deployment').lower()
        return kind == self._workload.kind and reference.get('name') == self._workload.name
