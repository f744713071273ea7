"""Faults of images: few reasons, and one warning a minute for each robot."""

from __future__ import annotations

from laimr_ros.nodes.image_faults import grouped, ImageFaults
import pytest


@pytest.mark.parametrize('text, group', [
    ('image is neither JPEG nor PNG (begins with 00 ff); send others',
     'image is neither JPEG nor PNG'),
    ('JPEG image of 640x480 is cut short after 1234 bytes; check the camera',
     'JPEG image of NxN is cut short after N bytes'),
    ('x' * 500, 'x' * 80),
])
def test_reasons_leave_out_what_differs(text, group):
    assert grouped(text) == group


def test_once_a_minute_for_each_robot():
    faults = ImageFaults()
    text = faults.warning(0.0, 'r', '/r/image', 'empty image')
    assert text is not None and 'robot r (/r/image): bad image: empty image' in text
    assert faults.warning(59.0, 'r', '/r/image', 'empty image') is None
    assert faults.warning(1.0, 's', '/s/image', 'empty image') is not None
    assert faults.warning(61.0, 'r', '/r/image', 'empty image') is not None


def test_what_is_remembered_is_bounded():
    faults = ImageFaults()
    for number in range(5000):
        faults.warning(0.0, f'r{number}', '/t', 'empty image')
    assert len(faults._told) <= 1000
