"""The outbox over HTTP, on Django REST framework, which is imported nowhere else.

path("outbox/", include("django_outbox.api.urls"))
"""

from __future__ import annotations
