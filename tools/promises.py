"""Writes what docs/promises.md says of each promise: the tests that hold it."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "promises.md"
BEGIN, END = "<!-- promises: begin -->", "<!-- promises: end -->"
_PROMISE = re.compile(r"^\| (P[1-9]) \| (\*\*.+?\*\*)", re.MULTILINE)

_OWN = "tests/flows/test_promises.py"
_MODEL = "tests/model/test_model.py"
_PEERS = "tests/peers_run/test_peers_run.py"
_HOLDS = "test_the_protocol_holds_and_its_moves_are_the_life_cycles"
HELD_BY: Mapping[str, tuple[str, ...]] = {
    "P1": (
        f"{_OWN}::test_p1_nothing_accepted_is_lost",
        f"{_MODEL}::{_HOLDS}",
        "tests/crash/test_fleet.py::test_one_of_eight_is_killed_under_load",
        "tests/crash/test_signals.py::test_a_signal_at_any_moment_leaves_nothing_in_the_air",
        "tests/flows/test_properties.py::test_any_history_agrees_with_the_model",
    ),
    "P2": (
        f"{_OWN}::test_p2_no_blind_replay",
        f"{_MODEL}::test_a_rule_that_is_left_out_is_missed",
        "tests/crash/test_sigkill.py::test_what_cannot_be_deduplicated_is_never_sent_again_by_itself",
        "tests/crash/test_sigkill.py::test_a_window_that_ends_before_the_retry_leaves_it_to_a_person",
        f"{_PEERS}::test_ten_messages_and_a_sender_that_dies",
    ),
    "P3": (
        f"{_OWN}::test_p3_the_ledger_comes_first",
        "tests/races/test_claims.py::test_the_ledger_comes_before_the_send",
        "tests/races/test_claims.py::test_no_attempt_no_send",
    ),
    "P4": (
        f"{_OWN}::test_p4_order_inside_a_delivery",
        "tests/races/test_claims.py::test_chunks_go_in_order_whoever_sends_them",
        "tests/crash/test_sigkill.py::test_one_chunk_in_doubt_holds_the_rest_until_a_person_decides",
    ),
    "P5": (
        f"{_OWN}::test_p5_stored_once",
        "tests/crash/test_supervised.py::test_a_process_killed_before_the_finaliser_ran_is_made_up_for",
        "tests/crash/test_supervised.py::test_a_finaliser_that_always_kills_gives_up_and_is_seen",
    ),
    "P6": (
        f"{_OWN}::test_p6_one_key_one_delivery",
        "tests/races/test_enqueue.py::test_p6_one_key_one_delivery_from_many_callers",
        "tests/races/test_enqueue.py::test_b84_two_messages_race_for_one_key",
    ),
    "P7": (
        f"{_OWN}::test_p7_late_truth_counts_once",
        "tests/flows/test_late_truth.py::test_late_truth_counts_once",
        "tests/crash/test_lost_claims.py::test_a_stopped_process_cannot_undo_what_came_after_it",
        "tests/admin/test_late_truth.py::test_a_late_answer_is_told_beside_what_it_contradicts",
        "tests/api/test_late_truth.py::test_a_late_answer_is_told_beside_what_it_contradicts",
    ),
    "P8": (
        f"{_OWN}::test_p8_a_poison_message_dies_alone",
        "tests/flows/test_sending.py::test_a_poison_message_dies_alone",
        "tests/crash/test_supervised.py::test_a_message_that_kills_its_process_runs_out_of_attempts",
        "tests/crash/test_misbehaving.py::test_whatever_a_channel_does_its_process_goes_on",
    ),
    "P9": (
        f"{_OWN}::test_p9_a_person_can_settle_everything",
        "tests/races/test_triage.py::test_persons_and_flushers_never_undo_one_another",
        "tests/races/test_triage.py::test_of_two_who_decide_differently_one_is_told",
    ),
}
"""The tests of each promise; each runs on SQLite, PostgreSQL and MariaDB."""

NOT: Mapping[str, str] = {
    "P1": "What a person deletes, or `outbox_prune` after its age, is gone.",
    "P2": "A far side that says it deduplicates and does not; an answer that is a lie.",
    "P3": "That the row is there after a database has lost a commit it had confirmed.",
    "P4": "Order between two deliveries; the order of what a person marks failed while it"
    " may still arrive, and then confirms or retries at once.",
    "P5": "What a finaliser does outside the database: it may be done again.",
    "P6": "A key whose delivery was pruned is a new key.",
    "P7": "That a sender which died ever tells what it knew.",
    "P8": "That a channel which never returns gives its slot back: it is replaced until as"
    " many are lost as the channel has, then the process ends with 75.",
    "P9": "That the person is right.",
}


def written(page: str, held_by: Mapping[str, tuple[str, ...]] = HELD_BY) -> str:
    """Return the page with the table as it is now.

    Raises SystemExit where a named test is not there, a promise of the README has none,
    or the page does not say once where the table goes.
    """
    if (page.count(BEGIN), page.count(END)) != (1, 1):
        raise SystemExit(f"{PAGE.name} needs {BEGIN} … {END}, once.")
    before, rest = page.split(BEGIN)
    rows = [
        f"| {name} | {title} | {'<br>'.join(_shown(test) for test in held_by[name])}"
        f" | {NOT[name]} |"
        for name, title in _promises(held_by)
    ]
    head = ["| | promise | held by | not promised |", "|---|---|---|---|"]
    table = "\n".join([BEGIN, *head, *rows, END])
    return f"{before}{table}{rest.split(END)[1]}"


def _promises(held_by: Mapping[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    found = _PROMISE.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    names = [name for name, _title in found]
    if names != sorted(held_by) or not all(held_by.values()):
        raise SystemExit(
            f"README.md has {names}, tests are named for {sorted(held_by)}."
        )
    return found


def _shown(test: str) -> str:
    path, name = test.split("::")
    file = ROOT / path
    source = file.read_text(encoding="utf-8") if file.is_file() else ""
    if name not in _functions(source):
        raise SystemExit(f"There is no test {test}.")
    return f"[`{name}`](../{path})"


def _functions(source: str) -> set[str]:
    """Return the names of the module's functions."""
    return {
        node.name
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef)
    }


if __name__ == "__main__":
    sys.stdout.write(f"{PAGE.relative_to(ROOT)}\n")
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
