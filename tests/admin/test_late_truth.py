"""P7 on the pages: an answer that comes too late to move anything is still told."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client

from django_outbox.models import Delivery
from tests.admin.conftest import url
from tests.contradictions import SCENES, only_chunk

pytestmark = pytest.mark.django_db
QUESTION = "What contradicts that?"


@pytest.mark.parametrize(("scene", "status", "_word", "words"), SCENES)
def test_a_late_answer_is_told_beside_what_it_contradicts(
    operator: Client,
    scene: Callable[[], Delivery],
    status: str,
    _word: str,
    words: str,
) -> None:
    """The status stays; the evidence says what speaks against it, the attempt is late."""
    delivery = scene()
    chunk = only_chunk()

    answer = operator.get(url("chunk_change", chunk.pk))
    facts = dict(answer.context["known"].facts)
    whole = operator.get(url("delivery_change", delivery.pk))

    assert status == chunk.status
    assert words in facts.get(QUESTION, "")
    assert (QUESTION in facts) == bool(words)
    (piece,) = whole.context["pieces"]
    assert piece.against == facts.get(QUESTION, "")
    for page in (answer.content.decode(), whole.content.decode()):
        assert words in page
        assert "<small>late</small>" in page
