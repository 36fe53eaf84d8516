"""Runs the same work in many threads, each with a database connection of its own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from django.db import connections

T = TypeVar("T")


def in_threads(count: int, work: Callable[[int], T]) -> list[T | BaseException]:
    """Return what each thread's work gave or raised, by its number from 0."""

    def closed(number: int) -> T:
        try:
            return work(number)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(closed, number) for number in range(count)]
    return [future.exception() or future.result() for future in futures]
