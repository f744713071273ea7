"""Whether a robot's clock agrees with ours, judged by the ages of its frames."""

from __future__ import annotations

from collections import deque

# Frames that the judgement looks back on. Short, so that a clock put right is believed again
# within seconds; long enough for one of them to have come through without delay.
WINDOW = 20


class ClockCheck:
    """
    Turns a frame's stamp into the time of its capture, if the stamp can be believed.

    The smallest age among the last frames is transport time plus the difference of the clocks.
    Negative, or so large that no network explains it, it is the clocks; then a frame counts from
    its reception, until they agree again. An age can be large for one frame without that.

    :param tolerance: how far a stamp may lie in the future, in seconds.
    :param max_age: smallest age, in seconds, from which on a clock is taken to be behind.
    """

    __slots__ = ('_ages', '_index', 'has_stamp', 'max_age', 'offset', 'tolerance')

    def __init__(self, tolerance: float, max_age: float) -> None:
        self.tolerance = tolerance
        self.max_age = max_age
        #: Smallest recent age in seconds; 0 before the first frame.
        self.offset = 0.0
        #: Whether the last frame had a stamp at all.
        self.has_stamp = True
        self._index = 0
        # Of each age that can still become the smallest: its frame's number and itself.
        self._ages: deque[tuple[int, float]] = deque()

    def captured(self, stamp_ns: int, clock_ns: int, received: float) -> float:
        """
        Return when a frame was captured, in seconds of the clock of ``received``.

        :param stamp_ns: the frame's stamp in nanoseconds.
        :param clock_ns: the ROS clock at its reception in nanoseconds.
        :param received: a monotonic clock at its reception in seconds.
        """
        if stamp_ns == 0:
            self.has_stamp = False
            return received
        self.has_stamp = True
        age = (clock_ns - stamp_ns) * 1e-9
        index = self._index = self._index + 1
        ages = self._ages
        while ages and ages[-1][1] >= age:
            ages.pop()
        ages.append((index, age))
        if ages[0][0] <= index - WINDOW:
            ages.popleft()
        self.offset = offset = ages[0][1]
        if -self.tolerance <= offset <= self.max_age and age > 0.0:
            return received - age
        return received

    @property
    def agrees(self) -> bool:
        """Return whether stamps are believed."""
        return self.has_stamp and -self.tolerance <= self.offset <= self.max_age

    @property
    def problem(self) -> str:
        """Return what is wrong and how to mend it, for people; empty if nothing is."""
        if not self.has_stamp:
            return ('frames have no stamp, so deadlines count from reception: '
                    'let the camera driver set header.stamp')
        if self.agrees:
            return ''
        where = 'ahead of' if self.offset < 0.0 else 'behind'
        return (f'its clock is {abs(self.offset):.3f} s {where} ours, so deadlines count from '
                'reception: synchronise the clocks (chrony), or use_sim_time on both or neither')
