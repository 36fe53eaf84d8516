"""Show the pieces that are retried on their own, and every try at each."""

from __future__ import annotations

from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from django_outbox.api.pagination import LatestTryFirst
from django_outbox.api.permissions import VIEW_ATTEMPT, VIEW_CHUNK
from django_outbox.api.serializers.asked import ChunkFilter, NoFilter
from django_outbox.api.serializers.shown import AttemptShown, ChunkInFull, ChunkShown
from django_outbox.api.views.endpoint import Endpoint
from django_outbox.lifecycle import WAITS_FOR_A_PERSON
from django_outbox.models import Attempt, Chunk


class Chunks(Endpoint):
    """All chunks, newest first."""

    needs = {"GET": (VIEW_CHUNK,)}

    def get_queryset(self) -> QuerySet[Chunk]:
        return self.chunks().defer("text", "payload")

    def get(self, request: Request) -> Response:
        wanted = self.query(ChunkFilter)
        if wanted.get("status") in WAITS_FOR_A_PERSON:
            # Few have it, and they have an index.
            wanted["delivery__waiting_since__isnull"] = False
        return self.page(self.get_queryset().filter(**wanted), ChunkShown)


class OneChunk(Endpoint):
    """One chunk."""

    needs = {"GET": (VIEW_CHUNK,)}

    def get_queryset(self) -> QuerySet[Chunk]:
        return self.chunks().select_related("delivery")

    def get(self, request: Request, pk: int) -> Response:
        return self.one(ChunkInFull)


class Attempts(Endpoint):
    """All tries at one chunk, the latest first."""

    needs = {"GET": (VIEW_ATTEMPT,)}
    pagination_class = LatestTryFirst

    def get_queryset(self) -> QuerySet[Chunk]:
        return self.chunks().only("pk")

    def get(self, request: Request, pk: int) -> Response:
        self.query(NoFilter)
        rows = Attempt.objects.filter(chunk=self.get_object())
        return self.page(rows, AttemptShown)
