"""Tell the story: `python -m example_project.demo`."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import django

from example_project.demo.receivers import MailReceiver, WebhookReceiver

FOLDER = Path(__file__).resolve().parents[2] / "build" / "demo"
SILENT_AT = 2


def main() -> int:
    """Start clean, start the receivers, tell the story; give the exit code."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    webhooks = WebhookReceiver(FOLDER, SILENT_AT)
    mails = MailReceiver(FOLDER)
    os.environ["DEMO_SMTP_PORT"] = str(mails.port)
    os.environ["DJANGO_SETTINGS_MODULE"] = "example_project.demo.settings"
    django.setup()

    from example_project.demo import serve, story

    code = story.tell(webhooks, mails, FOLDER)
    webhooks.shutdown()
    mails.stop()
    if code == 0 and os.environ.get("SERVE", "1") != "0":
        serve.admin()
    return code


if __name__ == "__main__":
    sys.exit(main())
