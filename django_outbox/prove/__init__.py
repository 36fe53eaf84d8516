"""Tries the promises in a project's own settings and database, by killing its flushers.

`spec` says what all its processes share, `plan` what is tried. `nursery` forks flushers
and callers, `receiver` is the far side, `proof` the main loop with its kills, cuts and
late answers; `person` decides what waits. `snapshot` and `reckoning` compare what there
is with what was promised, `findings` counts, `sweep` leaves nothing behind.
"""

from __future__ import annotations
