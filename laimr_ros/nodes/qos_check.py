"""Say which quality of service does not fit, on which side, and what to change."""

from __future__ import annotations

from collections.abc import Callable
import math

from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.topic_endpoint_info import TopicEndpointInfo

# Nodes come and go under new names; so many complaints are remembered.
_MAX_REMEMBERED = 10_000
# Middlewares differ by a little in what they call for ever; 250 years will do.
_INFINITE_NS = 8 * 10**18


def mismatch(offered: QoSProfile, requested: QoSProfile) -> tuple[str, str, str] | None:
    """
    Return the first policy in which a publisher does not offer what a subscription asks for.

    :param offered: quality of service of the publisher.
    :param requested: quality of service of the subscription.
    :return: name of the policy, what is offered and what is requested; None if all fits.
    """
    if (requested.reliability is ReliabilityPolicy.RELIABLE
            and offered.reliability is ReliabilityPolicy.BEST_EFFORT):
        return 'reliability', 'best_effort', 'reliable'
    if (requested.durability is DurabilityPolicy.TRANSIENT_LOCAL
            and offered.durability is DurabilityPolicy.VOLATILE):
        return 'durability', 'volatile', 'transient_local'
    for policy in ('deadline', 'liveliness_lease_duration'):
        given, wanted = _seconds(getattr(offered, policy)), _seconds(getattr(requested, policy))
        if wanted < given:
            return policy, f'{given:g} s', f'{wanted:g} s'
    return None


def _seconds(duration: Duration) -> float:
    """Return a duration in seconds; infinite where it is not set, or set to the most there is."""
    nanoseconds = duration.nanoseconds
    return nanoseconds / 1e9 if 0 < nanoseconds < _INFINITE_NS else math.inf


def node_name(info: TopicEndpointInfo) -> str:
    """Return the full name of the node an endpoint belongs to."""
    return f'{info.node_namespace.rstrip("/")}/{info.node_name}'


class QosWatch:
    """
    Logs, once each, which nodes cannot talk to us, with both sides and the fix.

    :param node: our node; its view of the graph is used.
    :param log: gets the messages; by default the node's warnings.
    """

    def __init__(self, node: Node, log: Callable[[str], None] | None = None) -> None:
        self._node = node
        self._log = log or node.get_logger().warning
        self._said: set[tuple[str, str, str]] = set()

    def check_publishers(self, topic: str, ours: QoSProfile) -> int:
        """
        Check those who publish what we subscribe to.

        :param topic: full name of the topic.
        :param ours: quality of service of our subscription.
        :return: how many of them cannot reach us.
        """
        unheard = 0
        for info in self._node.get_publishers_info_by_topic(topic):
            found = mismatch(info.qos_profile, ours)
            if found is None:
                continue
            unheard += 1
            policy, theirs, wanted = found
            self._say(topic, node_name(info), policy,
                      f'no image from {node_name(info)} on {topic}: it publishes with {policy} '
                      f'{theirs}, we subscribe with {policy} {wanted}. '
                      f'{_fix_for_images(policy, topic, theirs)}')
        return unheard

    def check_subscriptions(self, topic: str, ours: QoSProfile) -> int:
        """
        Check those who subscribe to what we publish.

        :param topic: full name of the topic.
        :param ours: quality of service of our publisher.
        :return: how many of them we cannot reach.
        """
        deaf = 0
        for info in self._node.get_subscriptions_info_by_topic(topic):
            found = mismatch(ours, info.qos_profile)
            if found is None:
                continue
            deaf += 1
            policy, offered, theirs = found
            self._say(topic, node_name(info), policy,
                      f'no detections for {node_name(info)} on {topic}: it subscribes with '
                      f'{policy} {theirs}, we publish with {policy} {offered}. '
                      f'Subscribe with {policy} {offered}.')
        return deaf

    def _say(self, topic: str, other: str, policy: str, text: str) -> None:
        key = topic, other, policy
        if key in self._said or len(self._said) >= _MAX_REMEMBERED:
            return
        self._said.add(key)
        self._log(text)


def _fix_for_images(policy: str, topic: str, theirs: str) -> str:
    if policy == 'reliability':
        return (f'Set our image_qos.reliability to {theirs}, or let it publish with '
                'reliable.')
    return (f'Set our qos_overrides.{topic}.subscription.{policy} to {theirs}, or let it publish '
            'with what we ask for.')
