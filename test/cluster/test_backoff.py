"""The delays between attempts."""

from laimr_ros.cluster.backoff import Backoff


def test_doubles_to_the_limit_and_starts_over():
    """0.5, 1, 2, 4, 8, 16, 30, 30 ... and 0.5 again after a reset."""
    backoff = Backoff(0.5, 30.0)
    assert [backoff.failed() for _ in range(8)] == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    for _ in range(2000):
        assert backoff.failed() == 30.0
    backoff.reset()
    assert backoff.failed() == 0.5
