"""How long one message of each provider may be, where that is said, and in which unit.

Where a provider's page and its servers differ, the smaller is taken.
"""

from __future__ import annotations

from django_outbox.splitting import Limit, Unit

TELEGRAM = Limit(4096, Unit.UTF16)
"""4,096 characters after entities are parsed (core.telegram.org/bots/api#sendmessage).

The servers count code points (tdlib/td, td/telegram/MessageContent.cpp, `utf8_length`), of
which there are never more than UTF-16 units; the raw text may have 32,768 bytes
(tdlib/telegram-bot-api, Client.cpp, `get_formatted_text`), which this cannot reach.
"""

TELEGRAM_CAPTION = Limit(1024, Unit.UTF16)
"""1,024 characters (core.telegram.org/bots/api#sendphoto), counted as for a text."""

SLACK = Limit(3900, Unit.UTF16)
"""4,000 characters are recommended (docs.slack.dev, chat.postMessage, "Truncating content").

The servers cut what is longer than about that themselves, through code blocks
(slackapi/java-slack-sdk#704, slack-ruby/slack-ruby-client#259). The unit is not said:
UTF-16 units are never fewer than characters.
"""

DISCORD = Limit(2000, Unit.CODE_POINTS)
"""2,000 characters of `content` (discord.com/developers/docs/resources/message).

"The API calculates length based on the number of codepoints" (discord-api-docs#1315).
"""

MATRIX = Limit(24_000, Unit.JSON)
"""An event may have 65,536 bytes of canonical JSON (spec.matrix.org, "Size limits").

That counts the body, the formatted body, the envelope and, in an encrypted room, a third
more: so little over a third of it is the body's.
"""

LINE = Limit(5000, Unit.UTF16)
"""5,000 UTF-16 code units (developers.line.biz, "Character counting in a text")."""

WEIXIN = Limit(2048, Unit.UTF8)
"""What is longer than 2,048 bytes is cut off without a word (microclaw@7fa72ed)."""
