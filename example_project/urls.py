"""The URLs of the example project: the shop and the admin."""

from __future__ import annotations

from django.contrib import admin
from django.urls import path

from example_project.shop.views import orders

urlpatterns = [
    path("", orders, name="orders"),
    path("admin/", admin.site.urls),
]
