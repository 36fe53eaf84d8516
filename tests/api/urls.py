"""The URLs of a project that mounts the API, once whole and once for tenants."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path

from django_outbox.api.urls import patterns
from tests.api.probes import inside
from tests.api.tenants import TenantAccess

urlpatterns = [
    path("probe", inside),
    path("admin/", admin.site.urls),
    path("outbox/", include("django_outbox.api.urls")),
    path(
        "tenant/",
        include((patterns(TenantAccess()), "django_outbox_api"), namespace="tenant"),
    ),
]
