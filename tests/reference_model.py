"""What must become of a chunk: no database, no clock, nothing of the code's own."""

from __future__ import annotations

VERBS = {
    "retry": ("failed unknown", "retry"),
    "fail": ("pending retry unknown", "failed"),
    "confirm": ("failed unknown", "delivered"),
    "doubt": ("failed", "unknown"),
    "drop": ("pending retry failed unknown", "dropped"),
}


class Model:
    def __init__(self, size: int, *, again: set[str]) -> None:
        self.size, self.allowed, self.again = size, size, again
        self.status, self.doubt = "pending", 0  # the first claim in doubt; 0: none
        self.tries: dict[int, str] = {}  # claim, rising -> what became of it

    def end(self, to: str) -> None:
        self.status = "unknown" if self.doubt and to in {"failed", "dropped"} else to

    def answer(self, claim: int, said: str) -> None:
        mine = self.status == "sending" and claim == max(self.tries)
        if mine or self.tries.get(claim) == "unknown" != said:
            self.tries[claim] = said if said in "sent dropped unknown" else "failed"
            (self.in_hand if mine else self.late)(claim, said)

    def in_hand(self, claim: int, said: str) -> None:
        never = said == "never" and self.tries.pop(claim)
        if "sent" in self.tries.values():
            self.end("delivered")
        elif never:
            self.end("retry" if self.tries else "pending")
        else:
            self.decide(claim, said)

    def late(self, claim: int, said: str) -> None:
        doubts = [one for one, became in self.tries.items() if became == "unknown"]
        if said == "sent" and self.status in {"unknown", "retry"}:
            self.end("delivered")
        elif said != "sent" and 0 < self.doubt <= claim:
            stays = self.doubt if doubts and self.status == "unknown" else 0
            self.doubt = min((c for c in doubts if c >= self.doubt), default=stays)
            if self.status == "unknown" and not doubts:
                self.decide(claim, said)

    def decide(self, claim: int, said: str) -> None:
        self.allowed += said in {"limit", "never"}
        self.doubt = self.doubt or claim * (said == "unknown")
        again = len(self.tries) < self.allowed and said in self.again
        self.end("retry" if again else self.tries[claim])

    def verb(self, name: str) -> None:
        sources, target = VERBS[name]
        if self.status in sources.split() and (name != "doubt" or self.tries):
            if name == "retry":
                self.allowed = len(self.tries) + self.size
            self.doubt = max(self.tries) if name == "doubt" else 0
            self.end(target)
