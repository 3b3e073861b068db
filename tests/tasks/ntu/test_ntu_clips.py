"""From observations to what the network sees: choice of bodies, preprocessing, sampling of frames."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks import rng
from tasks.ntu.bodies import select_people
from tasks.ntu.clip import SHOULDER_LEFT, SHOULDER_RIGHT, SPINE_BASE, SPINE_MID, SPINE_SHOULDER, Clip
from tasks.ntu.names import ClipName
from tasks.ntu.preprocessing import CONVENTIONS, compose, p_ntu, present, raw, s_rota, s_trans
from tasks.ntu.sampling import EMPTY, centre_frames, sample_frames
from tasks.ntu.standin.sensor import film


def body(length: int, motion: float, seed: int, size: tuple[float, float, float] = (0.2, 0.5, 0.1)) -> np.ndarray:
    """Joints (length, 25, 3) that go back and forth by `motion` metres."""
    shape = np.random.default_rng(seed).uniform(-1.0, 1.0, (1, 25, 3)) * size + np.array([0.0, 0.0, 3.0])
    shape[0, 0], shape[0, 1] = (-size[0], -size[1], 3.0), (size[0], size[1], 3.0)
    path = motion * np.sin(np.linspace(0.0, 6.0, length))
    return (shape + path[:, None, None]).astype(np.float32)


def clip_of(length: int, *bodies: tuple[np.ndarray, np.ndarray]) -> Clip:
    """A clip of (frame numbers, joints) pairs; body k has identity 100 + k."""
    frame = np.concatenate([np.asarray(where) for where, _ in bodies])
    identity = np.repeat(np.arange(len(bodies)) + 100, [len(where) for where, _ in bodies]).astype(np.uint64)
    joints = np.concatenate([points for _, points in bodies])
    order = np.argsort(frame, kind="stable")
    return Clip(length, frame[order], identity[order], joints[order])


EVERY = np.arange(40)


def test_one_body_fills_slot_0_and_gaps_are_zeros() -> None:
    where = np.r_[0:10, 15:40]
    joints = body(35, 0.3, 0)
    frames = select_people(clip_of(40, (where, joints)))
    assert frames.shape == (40, 2, 25, 3)
    assert frames.dtype == np.float32
    np.testing.assert_array_equal(frames[where, 0], joints)
    assert not frames[10:15].any()
    assert not frames[:, 1].any()


def test_a_single_body_is_kept_however_odd() -> None:
    wide = body(5, 0.1, 0, size=(0.5, 0.1, 0.1))
    np.testing.assert_array_equal(select_people(clip_of(5, (np.arange(5), wide)))[:, 0], wide)


def test_the_main_actor_is_who_moves_most() -> None:
    calm, lively = body(40, 0.05, 1), body(40, 0.4, 2)
    for pair in ((calm, lively), (lively, calm)):
        frames = select_people(clip_of(40, *((EVERY, joints) for joints in pair)))
        np.testing.assert_array_equal(frames[:, 0], lively)
        np.testing.assert_array_equal(frames[:, 1], calm)


@pytest.mark.parametrize(("stay", "kept"), [(11, False), (12, True)])
def test_bodies_that_stay_briefly_are_noise(stay: int, kept: bool) -> None:
    person, ghost = body(40, 0.1, 1), body(stay, 2.0, 2)  # the ghost moves more
    frames = select_people(clip_of(40, (EVERY, person), (np.arange(stay), ghost)))
    np.testing.assert_array_equal(frames[:, 1 if kept else 0], person)
    assert frames[:, 1].any() == kept


@pytest.mark.parametrize(("wide_frames", "kept"), [(69, True), (70, False)])
def test_bodies_that_are_too_wide_too_often_are_noise(wide_frames: int, kept: bool) -> None:
    """69 of 100 frames are below the share of 69.754 %, 70 are not."""
    person = body(100, 0.1, 1)
    chair = body(100, 2.0, 2)
    chair[:wide_frames, :, 0] *= 3.0
    frames = select_people(clip_of(100, (np.arange(100), person), (np.arange(100), chair)))
    assert frames[:, 1].any() == kept
    np.testing.assert_array_equal(frames[:, 1 if kept else 0], person)


def test_if_all_are_noise_the_longest_stays() -> None:
    short, long = body(5, 1.0, 1), body(9, 0.1, 2)
    frames = select_people(clip_of(20, (np.arange(5), short), (np.arange(9), long)))
    np.testing.assert_array_equal(frames[:9, 0], long)
    assert not frames[:, 1].any()


def test_bodies_that_never_meet_share_a_slot() -> None:
    """A person who is lost and found again under a new identity stays in one slot."""
    whole = body(40, 0.5, 1)
    other = body(40, 0.05, 2)
    frames = select_people(clip_of(40, (EVERY[:20], whole[:20]), (EVERY[20:], whole[20:]), (EVERY, other)))
    np.testing.assert_array_equal(frames[:, 0], whole)
    np.testing.assert_array_equal(frames[:, 1], other)


def test_a_third_body_at_the_same_time_is_left_out() -> None:
    three = [body(40, motion, seed) for seed, motion in enumerate((0.1, 0.5, 0.3))]
    frames = select_people(clip_of(40, *((EVERY, joints) for joints in three)))
    np.testing.assert_array_equal(frames[:, 0], three[1])
    np.testing.assert_array_equal(frames[:, 1], three[2])


@pytest.fixture
def frames() -> np.ndarray:
    """Two people, the main one absent at first and in the middle."""
    chosen = select_people(film(ClipName.parse("S001C003P001R002A050"), 0)).copy()
    assert present(chosen).sum(axis=0).min() > 20
    chosen[[0, 1, 9], 0] = 0.0
    chosen[12, 1] = 0.0
    return chosen


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_preprocessing_is_pure_and_keeps_absent_bodies_zero(frames: np.ndarray, convention: str) -> None:
    before = frames.copy()
    after = CONVENTIONS[convention](frames)
    np.testing.assert_array_equal(frames, before)
    np.testing.assert_array_equal(present(after), present(frames))
    assert after.dtype == np.float32
    assert np.isfinite(after).all()


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_preprocessing_survives_empty_and_degenerate_clips(convention: str) -> None:
    nobody = np.zeros((4, 2, 25, 3), np.float32)
    np.testing.assert_array_equal(CONVENTIONS[convention](nobody), nobody)
    point = np.ones((4, 2, 25, 3), np.float32)  # all joints in one place: there are no axes
    assert np.isfinite(CONVENTIONS[convention](point)).all()
    only_second = nobody.copy()
    only_second[:, 1] = 1.5
    np.testing.assert_array_equal(CONVENTIONS[convention](only_second), only_second)


def test_raw_changes_nothing(frames: np.ndarray) -> None:
    np.testing.assert_array_equal(raw(frames), frames)


def test_s_trans_is_one_translation(frames: np.ndarray) -> None:
    moved = s_trans(frames)
    np.testing.assert_array_equal(moved[2, 0, SPINE_MID], 0.0)
    origin = frames[2, 0, SPINE_MID]
    np.testing.assert_allclose(moved[present(frames)] + origin, frames[present(frames)], atol=1e-6)


def test_s_rota_turns_the_first_pose_to_the_front(frames: np.ndarray) -> None:
    turned = compose(s_trans, s_rota)(frames)
    first = turned[2, 0].astype(np.float64)
    across = first[SHOULDER_LEFT] - first[SHOULDER_RIGHT]
    spine = first[SPINE_SHOULDER] - first[SPINE_BASE]
    assert across[0] > 0.1
    np.testing.assert_allclose(across[1:], 0.0, atol=1e-6)
    assert spine[1] > 0.1
    np.testing.assert_allclose(spine[2], 0.0, atol=1e-6)
    there = present(frames)
    spread = [np.linalg.norm(x[there] - x[2, 0, SPINE_MID], axis=-1) for x in (frames, turned)]
    np.testing.assert_allclose(spread[0], spread[1], atol=1e-5)  # a rigid motion
    hand = [np.linalg.det(x[2, 0, [4, 8, 20]] - x[2, 0, [0, 0, 3]]) for x in (frames, turned)]
    np.testing.assert_allclose(hand[0], hand[1], rtol=1e-3)  # and no mirror


def test_s_rota_undoes_the_camera() -> None:
    """The same poses seen from elsewhere become the same coordinates."""
    joints = select_people(film(ClipName.parse("S001C003P001R002A021"), 0))
    joints = joints[present(joints)[:, 0]]
    q, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))
    q *= np.sign(np.linalg.det(q))
    there = present(joints)[..., None, None]
    elsewhere = np.where(there, joints @ q.T + (0.3, -1.0, 2.0), 0.0).astype(np.float32)
    for convention in ("s-rota", "p-ntu"):
        apart = np.abs(CONVENTIONS[convention](joints) - CONVENTIONS[convention](elsewhere)).max()
        assert apart < 1e-4
    assert np.abs(s_trans(joints) - s_trans(elsewhere)).max() > 0.1


def test_p_ntu_normalises_every_frame(frames: np.ndarray) -> None:
    out = p_ntu(frames).astype(np.float64)
    there = present(frames)[:, 0]
    actor = out[there, 0]
    np.testing.assert_allclose(actor[:, SPINE_MID], 0.0, atol=1e-6)
    np.testing.assert_allclose(actor[:, SHOULDER_LEFT, 1:], actor[:, SHOULDER_RIGHT, 1:], atol=1e-5)
    spine = actor[:, SPINE_SHOULDER] - actor[:, SPINE_BASE]
    np.testing.assert_allclose(np.linalg.norm(spine, axis=-1), 1.0, atol=1e-5)
    np.testing.assert_allclose(spine[:, 2], 0.0, atol=1e-5)


def test_p_ntu_uses_the_last_known_axes_where_the_main_actor_is_absent(frames: np.ndarray) -> None:
    held = frames.copy()
    held[9, 0] = held[8, 0]
    np.testing.assert_array_equal(p_ntu(frames)[9, 1], p_ntu(held)[9, 1])


def draw(length: int, steps: int = 20, key: int = 0) -> np.ndarray:
    return sample_frames(np.array([length]), steps, rng.generator("test", key))[:, 0]


@settings(deadline=None, derandomize=True)
@given(st.integers(1, 300), st.integers(0, 1000))
def test_sampled_frames_follow_the_three_rules(length: int, key: int) -> None:
    for frames in (draw(length, key=key), centre_frames(np.array([length]), 20)[:, 0]):
        inside = frames[frames != EMPTY]
        assert ((inside >= 0) & (inside < length)).all()
        if length >= 40:
            width = length // 20
            segment = np.minimum(frames // width, 19)
            np.testing.assert_array_equal(segment, np.arange(20))
        elif length > 20:
            np.testing.assert_array_equal(np.diff(frames), 1)
        else:
            np.testing.assert_array_equal(np.diff(inside), 1)
            assert inside[0] == 0  # only the end is ever cut


def test_every_frame_can_be_drawn() -> None:
    for length in (15, 20, 21, 39, 40, 59, 100):
        drawn = np.concatenate([draw(length, key=key) for key in range(600)])
        assert set(drawn.tolist()) - {EMPTY} == set(range(length))


def test_short_clips_start_below_the_larger_of_five_and_the_room() -> None:
    for length, room in ((8, 12), (15, 5), (18, 5), (20, 5)):
        starts = {int(np.argmax(draw(length, key=key) != EMPTY)) for key in range(600)}
        assert starts == set(range(room))


def test_centres() -> None:
    lengths = np.array([100, 49, 40, 31, 20, 13])
    frames = centre_frames(lengths, 20)
    np.testing.assert_array_equal(frames[:, 0], np.arange(2, 100, 5))
    assert frames[-1, 1] == 38 + 5  # the last segment has frames 38 to 48
    np.testing.assert_array_equal(frames[:, 2], np.arange(0, 40, 2))
    np.testing.assert_array_equal(frames[:, 3], np.arange(5, 25))
    np.testing.assert_array_equal(frames[:, 4], np.arange(20))
    np.testing.assert_array_equal(frames[:, 5], [EMPTY] * 3 + list(range(13)) + [EMPTY] * 4)
