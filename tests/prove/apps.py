"""Plants the defect of OUTBOX_PROVE_DEFECT into each process of a proof, when it starts."""

from __future__ import annotations

import os

from django.apps import AppConfig


class Planted(AppConfig):
    name = "tests.prove"
    label = "tests_prove"

    def ready(self) -> None:
        from tests.prove.defects import DEFECTS

        if name := os.environ.get("OUTBOX_PROVE_DEFECT"):
            DEFECTS[name].plant()
