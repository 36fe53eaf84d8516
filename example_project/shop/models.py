"""What the shop sells, by order."""

from __future__ import annotations

from django.db import models


class Order(models.Model):
    """One order, and when its confirmation was through."""

    customer = models.EmailField()
    item = models.CharField(max_length=200)
    created_at = models.DateTimeField(auto_now_add=True)
    confirmed_at = models.DateTimeField(null=True, blank=True, editable=False)

    def __str__(self) -> str:
        return f"#{self.pk} {self.item}"
