"""A trace is read, and what is wrong with it is said."""

from __future__ import annotations

from laimr_ros.demo.replay import read_frames, ReplayError
import pytest


def test_frames_come_in_the_order_of_their_times(tmp_path):
    path = tmp_path / 'trace.csv'
    path.write_text('time_s,robot,lane\n2.5,0,balanced\n0.5,1,balanced\n')
    assert read_frames(path) == [(0.5, 'robot1'), (2.5, 'robot0')]


@pytest.mark.parametrize(('text', 'told'), [
    (None, 'cannot be read'), ('time,robot\n1,2\n', 'time_s'), ('time_s,robot\nx,2\n', "'x'"),
    ('time_s,robot\n', 'has no frame')])
def test_a_bad_trace_is_refused_by_name(text, told, tmp_path):
    path = tmp_path / 'trace.csv'
    if text is not None:
        path.write_text(text)
    with pytest.raises(ReplayError, match=told) as caught:
        read_frames(path)
    assert str(path) in str(caught.value)
