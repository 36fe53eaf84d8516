"""Tells Sphinx how these pages are made: `make docs` builds them."""

from __future__ import annotations

from importlib.metadata import version as installed

project = "django_outbox"
author = "django_outbox contributors"
project_copyright = author
release = version = installed("django-outbox-delivery")

extensions = ["myst_parser", "sphinxcontrib.mermaid"]
smartquotes = False  # they would make a dash of an option's two
source_suffix = {".md": "markdown"}
exclude_patterns = ["pictures"]

myst_fence_as_directive = ["mermaid"]  # a chart here and where the file is read
myst_heading_anchors = 3

html_theme = "furo"
html_title = project
html_copy_source = False
