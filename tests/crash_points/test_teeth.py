"""The crash points can fail: each defect that is planted is noticed, by an invariant."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.crash.channels import ASKED, BLIND, DEDUPE
from tests.crash_points.choice import Choice
from tests.crash_points.far_sides import PAST
from tests.crash_points.theatre import Broken, Theatre

pytestmark = [pytest.mark.crash_full, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    ("defect", "name", "kind", "found_by"),
    [
        ("attempt_after_the_send", "round", BLIND, "_attempts_are_counted"),
        ("rescue_resends", "round", BLIND, "_terminal_means_terminal"),
        ("settle_without_its_token", "overtaken", DEDUPE, "_is_not_lost"),
        ("next_chunk_released_later", "round", ASKED, "_everything_is_owned"),
        ("window_not_checked_in_the_claim", "window over", PAST, "_was_not_sent_again"),
        ("put_in_after_the_commit", "enqueue", BLIND, "_both_or_neither"),
        ("finalised_before_it_is_marked", "finalise", BLIND, "_finalised_once"),
    ],
)
def test_a_defect_is_found(
    theatre: Callable[..., Theatre], defect: str, name: str, kind: str, found_by: str
) -> None:
    """Sound, the same scenario holds at every point."""
    with pytest.raises(Broken) as caught:
        list(theatre(name, kind, defect).play(Choice(once=True)))

    assert found_by == caught.value.where
