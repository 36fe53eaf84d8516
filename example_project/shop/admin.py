"""The shop's orders in the admin."""

from __future__ import annotations

from django.contrib import admin

from example_project.shop.models import Order

admin.site.register(
    Order,
    list_display=["pk", "customer", "item", "created_at", "confirmed_at"],
    readonly_fields=["created_at", "confirmed_at"],
)
