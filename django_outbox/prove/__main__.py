"""Runs the nursery: `python -m django_outbox.prove`, started by outbox_prove only."""

from __future__ import annotations

from django_outbox.prove.nursery import main

if __name__ == "__main__":
    main()
