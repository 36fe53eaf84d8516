"""Sets a proof up and takes it down again, whatever ends it."""

from __future__ import annotations

import logging
import secrets
import shutil
import tempfile
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from uuid import UUID

from django_outbox.models.fields import uuid7
from django_outbox.prove import refusing
from django_outbox.prove.company import Company
from django_outbox.prove.cuts import cut
from django_outbox.prove.findings import Findings
from django_outbox.prove.fleet import Fleet
from django_outbox.prove.proof import Proof
from django_outbox.prove.receiver import Receiver
from django_outbox.prove.spec import NAME, Spec, entered
from django_outbox.prove.sweep import sweep
from django_outbox.prove.witness import Witness

_RANDOM_BITS = 80


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command was asked for."""

    kills: int
    seed: int
    database: str
    channel: str = ""
    interrupted: Event = field(default_factory=Event)
    """Set by who raises KeyboardInterrupt: Python drops one that comes in a finaliser."""


def prove(wanted: Wanted) -> tuple[Findings, str]:
    """Run one proof; give what it found, and the folder of its logs where it kept them.

    Nothing of it is left in the database, also where it is interrupted. Raises what the
    database raises, and NurseryGone.
    """
    findings = Findings()
    home = tempfile.mkdtemp(prefix=f"{NAME}-")
    try:
        sweep(wanted.database)
        spec = _spec(wanted, home)
        if not spec.finaliser:
            findings.note(
                "No finaliser was tried: the project has one, or has deliveries that"
                " wait for one, and it would be called for these too."
            )
        with _staged(spec, wanted, findings) as proof:
            proof.run()
            proof.reckon()
    finally:
        if not findings.broken:
            shutil.rmtree(home, ignore_errors=True)
    return findings, home if findings.broken else ""


def _spec(wanted: Wanted, home: str) -> Spec:
    # The time is in the high bits: everything from now on has a greater id.
    since = UUID(int=uuid7().int >> _RANDOM_BITS << _RANDOM_BITS)
    return Spec(
        seed=wanted.seed,
        run=f"{NAME} {secrets.token_hex(6)}",
        database=wanted.database,
        home=home,
        port=0,
        secret=f"whsec_{b64encode(secrets.token_bytes(32)).decode()}",
        since=str(since),
        finaliser=refusing.can_finalise(wanted.database),
        yours=wanted.channel,
    )


@contextmanager
def _staged(spec: Spec, wanted: Wanted, findings: Findings) -> Iterator[Proof]:
    with ExitStack() as stage:
        stage.callback(sweep, spec.database)
        stage.enter_context(_quiet())
        witness = Witness(spec.database)
        stage.callback(witness.close)
        log = Path(spec.home) / "receiver.jsonl"
        receiver = Receiver(spec.seed, log, witness.look)
        receiver.start()
        stage.callback(receiver.stop)
        spec = replace(spec, port=receiver.server_port)
        stage.enter_context(entered(spec))
        company = Company(spec)
        stage.callback(_end, spec, company)
        fleet = Fleet(spec, company, findings)
        proof = Proof(spec, wanted.kills, fleet, receiver, findings, wanted.interrupted)
        stage.callback(proof.close)
        yield proof


def _end(spec: Spec, company: Company) -> None:
    """Kill what is left; no backend may still be writing for the dead."""
    company.end()
    for child in company.children:
        cut(spec, child, Findings())


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what the outbox logs here from whoever is called by the project's logs."""
    logger = logging.getLogger("django_outbox")
    before = logger.handlers, logger.propagate
    logger.handlers, logger.propagate = [logging.NullHandler()], False
    try:
        yield
    finally:
        logger.handlers, logger.propagate = before
