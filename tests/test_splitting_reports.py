"""Public bug reports about splitting, each with the input that broke somebody else."""

from __future__ import annotations

import re

import pytest

from django_outbox.channels.limits import (
    DISCORD,
    LINE,
    MATRIX,
    SLACK,
    TELEGRAM,
    WEIXIN,
)
from django_outbox.splitting import (
    HTML,
    MARKDOWN,
    MRKDWN,
    PLAIN,
    Entities,
    Limit,
    Markup,
    Splitter,
    Unit,
)
from tests.test_splitting import FAMILY, FENCED, parted
from tests.test_splitting_markup import Fences, ink, joined, sent, styles

GRINNING, HAT = "\U0001f600", "\U0001f3a9"
CODE = "<code>" + "value = compute(value)\n" * 700 + "</code>"
QUOTES = "<blockquote>q</blockquote>\n" * 1250


def utf16(size: int) -> Limit:
    """Return a limit as most reporters had it."""
    return Limit(size, Unit.UTF16)


@pytest.mark.parametrize(
    ("text", "limit", "markup", "most"),
    [
        pytest.param("a" * 3998 + FAMILY + "Z", utf16(4000), PLAIN, 2, id="openclaw/openclaw#127654, telegram"),
        pytest.param("a" * 1998 + FAMILY + "Z", utf16(2000), PLAIN, 2, id="openclaw/openclaw#127654, discord"),
        pytest.param("a" * 7998 + FAMILY + "Z", utf16(8000), PLAIN, 2, id="openclaw/openclaw#127654, slack"),
        pytest.param("line\n" + "w" * 4080 + f" {HAT}{HAT}\nand {HAT} on" * 40, TELEGRAM, PLAIN, 3, id="NousResearch/hermes-agent#11466"),
        pytest.param("a" * 3999 + GRINNING, utf16(4000), PLAIN, 2, id="elizaOS/eliza#22218"),
        pytest.param(GRINNING * 9001, utf16(4000), PLAIN, 5, id="elizaOS/eliza#22219"),
        pytest.param("```" + "i" * 3990 + "\n" + "code\n" * 1600, utf16(4000), MARKDOWN, 4, id="openclaw/openclaw#131086"),
        pytest.param("```" + "\u00e9\u2603 garbled" * 180 + "\n" + "code\n" * 900 + "```", DISCORD, MARKDOWN, 5, id="openclaw/openclaw#110148"),
        pytest.param("```py\n" + "x" * 1987 + "\nyy\n```", Limit(1998), MARKDOWN, 2, id="agentscope-ai/QwenPaw#2976"),
        pytest.param("```py\n" + "    value = 1\n" * 300 + "```", utf16(2000), MARKDOWN, 3, id="use-agent-os/agent-os#2282"),
        pytest.param(FENCED, Limit(400), MARKDOWN, 10, id="NousResearch/hermes-agent#54579"),
        pytest.param("```\n" + "x" * 380 + " " * 900 + "y" * 380 + "\n```", Limit(400), MARKDOWN, 3, id="openclaw/openclaw#128615"),
        pytest.param("```py\n" + "A" * 5000 + "\n```", TELEGRAM, MARKDOWN, 2, id="microclaw, telegram.rs: loops for ever"),
        pytest.param("\n" + "A" * 5000, TELEGRAM, MARKDOWN, 2, id="microclaw, telegram.rs: first piece empty"),
        pytest.param("```\n" + "B" * 4091 + "\nmore\n```", TELEGRAM, MARKDOWN, 2, id="microclaw, telegram.rs: closer not counted"),
        pytest.param(GRINNING * 2, utf16(3), PLAIN, 2, id="microclaw, split_text: loops for ever"),
        pytest.param("say " + CODE, Limit(4096, Unit.UTF8), HTML, 5, id="librefang/librefang#2754"),
        pytest.param("<b>" + CODE * 2 + "</b>", TELEGRAM, HTML, 9, id="Seldaek/monolog#2066"),
        pytest.param(QUOTES, TELEGRAM, HTML, 9, id="sambitcreate/aiden-agent#167"),
        pytest.param("<p>word <b>bold</b> &amp; <i>more</i></p>\n" * 2000, Limit(4096), HTML, 25, id="caronc/apprise-api#167"),
        pytest.param(f"<p>{GRINNING} caf\u00e9</p>" * 5546, MATRIX, HTML, 5, id="caronc/apprise#1682"),
        pytest.param("\u6f22\u5b57" * 700, WEIXIN, PLAIN, 3, id="asd920/Auto-jd#49, tuangtalk/chatgpt-wecom#34"),
        pytest.param("\u4f60\u597d\u3002" * 900, WEIXIN, PLAIN, 4, id="microclaw/microclaw@7fa72ed (#399)"),
        pytest.param("1234567890" * 405, SLACK, MRKDWN, 2, id="slackapi/java-slack-sdk#704"),
        pytest.param("```" + "x" * 4100 + "```", SLACK, MRKDWN, 2, id="slack-ruby/slack-ruby-client#259"),
        pytest.param("12345678 " * 1478, SLACK, MRKDWN, 4, id="slackapi/bolt-js#2509"),
        pytest.param(GRINNING * 2001, DISCORD, MARKDOWN, 2, id="discord/discord-api-docs#1315"),
        pytest.param(GRINNING * 2501, LINE, PLAIN, 2, id="line: UTF-16 units"),
    ],
)  # fmt: skip  # one report a line
def test_reported_inputs_come_out_whole(
    text: str, limit: Limit, markup: Markup, most: int
) -> None:
    """Nothing lost, within the limit as sent, no character cut, few pieces, well-formed."""
    splitter = Splitter(limit, markup)
    pieces = splitter.pieces(text)
    said = sent(splitter, text)

    assert text == joined(pieces, text)
    assert max(map(limit.unit.measure, said)) <= limit.size
    assert 1 < len(said) <= most
    assert all(piece.strip() for piece in said)
    assert markup is not PLAIN or [] == parted(text, limit)
    if markup is MARKDOWN:
        assert [""] * len(said) == [Fences().read(piece).open for piece in said]
    if markup is HTML:
        assert styles(text) == [each for piece in said for each in styles(piece)]
    if markup is MRKDWN:
        assert [0] * len(said) == [piece.count("```") % 2 for piece in said]


def test_a_number_is_counted_and_comes_behind_the_closed_block() -> None:
    """zeroclaw-labs/zeroclaw#6701: markers added after measuring were over 4,096."""
    text = "```py\n" + "print('a line of code')\n" * 900 + "```"
    found = sent(Splitter(TELEGRAM, MARKDOWN, numbered=True), text)

    assert max(map(Unit.UTF16.measure, found)) <= 4096
    assert [f"\n```\n({n}/{len(found)})" for n in range(1, len(found) + 1)] == [
        re.sub(r"(?s).*(\n```\n)", r"\1", piece) for piece in found
    ]


def test_styles_do_not_move_with_the_spaces() -> None:
    """HKUDS/Vibe-Trading#867: what was trimmed shifted the offsets by one."""
    bold = {"type": "bold", "offset": 12, "length": 4}
    found = Splitter(Limit(5), Entities([bold])).pieces(GRINNING * 5 + "  bold")

    assert [
        (GRINNING * 5, []),
        ("  bol", [{**bold, "offset": 2, "length": 3}]),
        ("d", [{**bold, "offset": 0, "length": 1}]),
    ] == [(piece.text, (piece.payload or {})["entities"]) for piece in found]


def test_spaces_in_code_are_kept_in_a_span() -> None:
    """openclaw/openclaw#128615: a piece of whitespace alone was dropped without a word."""
    text = "```\n" + "x" * 380 + " " * 900 + "y" * 380 + "\n```"
    found = Splitter(Limit(400), MARKDOWN).pieces(text)

    assert text == joined(found, text)
    assert ink(text.replace("```", "")) == ink(
        "".join(
            Fences().read(said).code
            for said in sent(Splitter(Limit(400), MARKDOWN), text)
        )
    )


@pytest.mark.parametrize("size", [0, -1])
def test_no_limit_is_not_a_limit_of_nothing(size: int) -> None:
    """HKUDS/nanobot#4971: split_message("hello", max_len=0) looped for ever."""
    with pytest.raises(ValueError, match="or None as the limit for no splitting"):
        Limit(size)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("x" * 152 + "[rest", 157, id="phlib/sms-length#1"),
        pytest.param("||||" + "a" * 61 + "\u221e^|||", 70, id="TwilioDevEd/message-segment-calculator#57"),
        pytest.param("\U0001f60e" * 70, 140, id="instasent/sms-counter-php#15"),
    ],
)  # fmt: skip  # one report a line
def test_a_text_message_is_left_to_its_gateway(text: str, expected: int) -> None:
    """We count units and cut at a gateway's limit; it makes the parts of 153 or 67."""
    assert expected == Unit.UTF16.measure(text)
    assert [text] == sent(Splitter(utf16(1600)), text)
