"""A training can be stopped at any time and comes to the same end."""

from __future__ import annotations

from dataclasses import replace
import os
from pathlib import Path
import signal

from laimr_ros.training.learners import LearnerError
from laimr_ros.training.session import Progress, Recipe, Session, Stage
import pytest
import torch

RECIPE = Recipe('yolo', 'yolov5n.yaml', (Stage(64, 12), Stage(96, 8)), rate=0.001, batch=4, seed=5)


class Stopped(Exception):
    """As Ctrl-C does."""


def weights(session: Session, path: Path) -> dict[str, torch.Tensor]:
    """Return the weights that a session comes to."""
    session.save(path)
    from laimr_ros.detectors.yolo import read_network
    return dict(read_network(path).float().state_dict())


def run(session: Session, stop_at: int = 0) -> list[Progress]:
    """Train, or stop in mid-step as soon as so many pictures are learned."""
    seen: list[Progress] = []

    def report(progress: Progress) -> None:
        seen.append(progress)
        if stop_at and progress.images >= stop_at:
            session.keep()
            raise Stopped
    session.run(report)
    return seen


@pytest.mark.parametrize('stop_at', [4, 12, 16])
def test_going_on_comes_to_the_same_weights(tmp_path: Path, stop_at: int) -> None:
    """In the first stage, at its end and in the second."""
    whole = Session(RECIPE, None, tmp_path / 'a.pt', threads=1, workers=0)
    seen = run(whole)
    assert [p.images for p in seen] == [4, 8, 12, 16, 20]
    assert [p.input_px for p in seen] == [64, 64, 64, 96, 96]
    assert all(p.total == 20 and p.loss > 0 for p in seen)
    first = Session(RECIPE, None, tmp_path / 'b.pt', threads=1, workers=0)
    with pytest.raises(Stopped):
        run(first, stop_at)
    second = Session(RECIPE, None, tmp_path / 'b.pt', threads=1, workers=0)
    assert second.images == stop_at
    run(second)
    one, other = weights(whole, tmp_path / 'a1.pt'), weights(second, tmp_path / 'b1.pt')
    assert all(torch.allclose(one[key], other[key], atol=2e-3) for key in one)
    assert second.images == 20 and second.elapsed_s > 0


def test_pictures_drawn_by_processes_are_the_same(tmp_path: Path) -> None:
    """Where they are made does not matter."""
    recipe = replace(RECIPE, stages=(Stage(64, 8),))
    made = []
    for workers in (0, 1):
        session = Session(recipe, None, tmp_path / f'{workers}.pt', threads=1, workers=workers)
        run(session)
        made.append(weights(session, tmp_path / f'{workers}w.pt'))
    assert all(torch.allclose(made[0][key], made[1][key], atol=2e-3) for key in made[0])


def test_a_checkpoint_of_other_settings_is_refused(tmp_path: Path) -> None:
    """Nothing is overwritten."""
    path = tmp_path / 'a.pt'
    session = Session(RECIPE, None, path, threads=1, workers=0)
    with pytest.raises(Stopped):
        run(session, 4)
    before = path.read_bytes()
    with pytest.raises(LearnerError, match='of a training with other settings; delete it'):
        Session(replace(RECIPE, rate=0.01), None, path, threads=1, workers=0)
    assert path.read_bytes() == before


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    """With what to do."""
    path = tmp_path / 'a.pt'
    path.write_bytes(b'no checkpoint')
    with pytest.raises(LearnerError, match=r"cannot go on from '.*a\.pt': .*; delete it"):
        Session(RECIPE, None, path, threads=1, workers=0)


def test_held_out_seeds_are_not_trained_on(tmp_path: Path) -> None:
    """Or judging would be no test."""
    with pytest.raises(ValueError, match='held out'):
        run(Session(replace(RECIPE, seed=1000), None, tmp_path / 'a.pt', threads=1, workers=0))


def test_ctrl_c_keeps_what_was_learned(tmp_path: Path) -> None:
    """After the step that is under way, and nothing where there is nothing to keep."""
    path = tmp_path / 'a.pt'

    def press(progress: Progress) -> None:
        if progress.images == 8:
            os.kill(os.getpid(), signal.SIGINT)

    session = Session(RECIPE, None, path, threads=1, workers=0)
    with pytest.raises(KeyboardInterrupt):
        session.run(press)
    assert Session(RECIPE, None, path, threads=1, workers=0).images == session.images == 8


def test_a_checkpoint_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """And what is there stays."""
    (tmp_path / 'file').write_text('mine')
    session = Session(RECIPE, None, tmp_path / 'file' / 'a.pt', threads=1, workers=0)
    with pytest.raises(LearnerError, match=r"cannot write '.*a\.pt' \(.*\); free some space"):
        session.keep()
    assert (tmp_path / 'file').read_text() == 'mine'
