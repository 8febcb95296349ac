"""The base of every configuration: reading YAML, refusing unknown keys with the nearest valid name."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from condvne.errors import ConfigError


class Settings(BaseModel):
    """Base of every configuration: frozen, and unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def load_yaml(path: str | Path) -> dict[str, Any]:
    """The mapping of settings in a YAML file. Raises ConfigError naming the file."""
    path = Path(path)
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); give the path of a YAML file.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not valid YAML ({' '.join(str(error).split())}).") from error
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: must hold a mapping of settings at the top level.")
    return raw


SettingsT = TypeVar("SettingsT", bound=Settings)


def validate(model: type[SettingsT], raw: Mapping[str, Any], where: str) -> SettingsT:
    """Validate settings; each fault becomes one clause, an unknown key names the nearest valid one."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        clauses = [_clause(model, fault) for fault in error.errors()]
        raise ConfigError(f"{where}: " + "; ".join(clauses) + ".") from error


def _clause(model: type[BaseModel], fault: Any) -> str:
    location = [str(part) for part in fault["loc"]]
    key = ".".join(location)
    if fault["type"] != "extra_forbidden":
        return f"{key or 'settings'}: {fault['msg'].removeprefix('Value error, ')}"
    near = difflib.get_close_matches(location[-1], _field_names(model), n=1, cutoff=0.5)
    return f"{key}: no such setting" + (f"; did you mean {near[0]}?" if near else "")


def _field_names(model: type[BaseModel]) -> list[str]:
    names: set[str] = set()
    pending: list[Any] = [model]
    while pending:
        annotation = pending.pop()
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            names.update(annotation.model_fields)
            pending.extend(f.annotation for f in annotation.model_fields.values())
        else:
            pending.extend(getattr(annotation, "__args__", ()))
    return sorted(names)


def plain_settings(config: Settings) -> dict[str, Any]:
    """The resolved configuration as JSON knows it: infinite numbers become "inf"."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        if isinstance(value, list):
            return [plain(item) for item in value]
        return str(value) if isinstance(value, float) and math.isinf(value) else value

    settings: dict[str, Any] = plain(config.model_dump(mode="json"))
    return settings
