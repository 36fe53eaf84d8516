"""Serve the admin over what the demo left, to one user with a one-time password."""

from __future__ import annotations

import secrets

from django.contrib.auth import get_user_model
from django.core.management import call_command

from example_project.demo.receivers import HOST, free_port


def admin() -> None:
    """Print where it is and who may come in, and serve until Ctrl-C."""
    password = secrets.token_urlsafe(9)
    users = get_user_model()._default_manager  # Django's own name
    users.filter(username="operator").delete()
    users.create_superuser("operator", password=password)
    address = f"{HOST}:{free_port(8000)}"
    print(f"admin:    http://{address}/admin/django_outbox/")  # the story
    print("user:     operator")  # the story
    print(f"password: {password}", flush=True)  # the story
    call_command("runserver", address, use_reloader=False, verbosity=0)
