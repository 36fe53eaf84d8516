"""What bodies and query parameters have in common: a name that is not known is an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rest_framework import serializers

from django_outbox.conf.reading import LONGEST, nearest


class Strict(serializers.Serializer[Any]):
    """Refuses a slip of the pen, which else would be a value that nobody looks at."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, Mapping):
            errors = {
                name: [f"There is no such field. Did you mean {near!r}?"]
                for name in data
                if name not in self.fields
                for near in [nearest(name, self.fields)]
            }
            if errors:
                raise serializers.ValidationError(errors)
        return super().to_internal_value(data)


class Exact(serializers.CharField):
    """A text as it was sent: spaces at its ends are its own."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(trim_whitespace=False, **kwargs)


class Seconds(serializers.FloatField):
    """A duration, from a millisecond to `most` seconds."""

    def __init__(self, *, most: float = LONGEST, **kwargs: Any) -> None:
        super().__init__(min_value=0.001, max_value=most, **kwargs)
        self.most = most

    def to_internal_value(self, data: Any) -> float:
        if isinstance(data, bool) or not isinstance(data, int | float):
            self.fail("invalid")
        # Before it is a float, which not every int can be; and NaN is not <= either.
        if not -LONGEST <= data <= self.most:
            self.fail("max_value", max_value=self.most)
        return super().to_internal_value(data)
