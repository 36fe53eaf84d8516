"""The admin: what is in the outbox and what became of it, to read."""

from __future__ import annotations

from django_outbox.admin.pages import register

register()
