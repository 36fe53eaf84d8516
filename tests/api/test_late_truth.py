"""P7 over REST: an answer that comes too late to move anything is still told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from django_outbox.models import Delivery
from tests.api.conftest import ClientOf
from tests.contradictions import SCENES, only_chunk

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(("scene", "status", "word", "_words"), SCENES)
def test_a_late_answer_is_told_beside_what_it_contradicts(
    client_of: ClientOf,
    scene: Callable[[], Delivery],
    status: str,
    word: str,
    _words: str,
) -> None:
    """The chunk has its status and the word for what speaks against it; the row is late."""
    scene()
    pk = only_chunk().pk
    client = client_of("view")

    told = client.get(f"/outbox/v1/chunks/{pk}").json()
    rows = client.get(f"/outbox/v1/chunks/{pk}/attempts").json()["results"]

    assert (status, word) == (told["status"], told["contradiction"])
    assert [True] == [row["late"] for row in rows if row["number"] == 1]
