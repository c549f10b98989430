"""Shape: a structured value that capabilities take and return."""

from __future__ import annotations

from typing import ClassVar

from trails.errors import FieldError, ValidationError
from trails.model.types import ShapeDescriptor


class Shape:
    """Base of shapes; constraints are checked where a value crosses a capability's border."""

    __trails__: ClassVar[ShapeDescriptor]

    def __init__(self, **values: object) -> None:
        """Set fields by name."""
        descriptor = self.__trails__
        known = descriptor.by_name
        if not values.keys() <= known.keys():
            unknown = [name for name in values if name not in known]
            raise ValidationError(
                FieldError(name, "unknown_field", f"{descriptor.name} has no field {name!r}")
                for name in unknown
            )
        own = self.__dict__
        for name, default, many in descriptor.defaults:
            given = values.get(name, default)
            if many:
                given = list(given) if given is not None else []  # type: ignore[call-overload]
            own[name] = given

    def __eq__(self, other: object) -> bool:
        """Equal when all fields are."""
        return type(other) is type(self) and vars(self) == vars(other)

    def __hash__(self) -> int:
        """Shapes are mutable values; identity is all that is stable."""
        return id(self)

    def __repr__(self) -> str:
        """The fields."""
        inner = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({inner})"
