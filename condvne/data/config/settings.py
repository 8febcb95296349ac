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
        raw = yaml.load(path.read_text(encoding="utf-8-sig"), _UniqueKeys)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); give the path of a YAML file.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text ({error.reason}); save it as UTF-8.") from error
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(
            f"{path}{line}: is not valid YAML ({error.problem}); mend this line or the one above."
        ) from error
    except (yaml.YAMLError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"{path}: is not valid YAML ({reason}); mend or remove what it names.") from error
    if not isinstance(raw, dict):
        raise ConfigError(f'{path}: must hold a mapping of settings at the top level, such as "name: my-run".')
    return raw


class _UniqueKeys(yaml.SafeLoader):
    """Refuses keys that come twice, of which YAML's own loader silently keeps the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        places: dict[str, int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in places:
                    problem = f"{key.value!r} was already set in line {places[key.value]}"
                    raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
                places[key.value] = key.start_mark.line + 1
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


SettingsT = TypeVar("SettingsT", bound=Settings)


def validate(
    model: type[SettingsT], raw: Mapping[str, Any], where: str, names: Mapping[str, str] | None = None
) -> SettingsT:
    """Validate settings; each fault becomes one clause, an unknown key names the nearest valid one.

    Args:
        where: what the message begins with, e.g. the path of the file.
        names: how the user calls a key, e.g. the option that sets it; default: by the key itself.

    Raises ConfigError.
    """
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        faults = error.errors()
        unknown = [fault for fault in faults if fault["type"] == "extra_forbidden"]
        # A mistyped key is missing as well: what it should be called comes first.
        clauses = [_clause(model, fault, names or {}) for fault in unknown]
        clauses += [_clause(model, fault, names or {}) for fault in faults if fault not in unknown]
        raise ConfigError(f"{where}: " + "; ".join(dict.fromkeys(clauses)) + ".") from error


def _clause(model: type[BaseModel], fault: Any, names: Mapping[str, str]) -> str:
    location = [str(part) for part in fault["loc"]]
    key = ".".join(location)
    if fault["type"] != "extra_forbidden":
        return f"{names.get(key or 'settings', key or 'settings')}: {_said(fault)}"
    near = difflib.get_close_matches(location[-1], _field_names(model, location[:-1]), n=1, cutoff=0.5)
    return f"{key}: no such setting" + (f"; did you mean {near[0]}?" if near else "")


def _said(fault: Any) -> str:
    """What is wrong with a value, and what it was."""
    context, kind = fault.get("ctx", {}), fault["type"]
    wanted = {
        "greater_than": "must be above {gt:g}",
        "greater_than_equal": "must be at least {ge:g}",
        "less_than": "must be below {lt:g}",
        "less_than_equal": "must be at most {le:g}",
        "too_short": "must name at least {min_length}",
        "literal_error": "must be {expected}",
        "string_pattern_mismatch": "must match {pattern}",
        "union_tag_invalid": "must be one of {expected_tags}",
        "finite_number": "must be finite",
    }
    types = {
        "int": "a whole number",
        "float": "a number",
        "bool": "true or false",
        "string": "a text",
        "list": "a list",
    }
    if kind in ("missing", "union_tag_not_found"):
        return "is missing" if kind == "missing" else f"lacks {context['discriminator']}, which says what kind it is"
    if kind == "value_error":
        return str(fault["msg"]).removeprefix("Value error, ")
    if kind in wanted:
        text = wanted[kind].format(**context)
    elif kind.split("_")[0] in types:
        text = f"must be {types[kind.split('_')[0]]}"
    elif kind in ("model_type", "dict_type", "model_attributes_type"):
        text = "must be a mapping of settings"
    else:
        text = str(fault["msg"])
    return f"{text}, not {fault['input']!r}"


def _field_names(model: type[BaseModel], location: list[str]) -> list[str]:
    """The settings that may stand at a place."""
    models = [model]
    for part in location:
        fields = [m.model_fields[part] for m in models if part in m.model_fields]
        if fields:  # else the part is the tag of a union or the index of a list
            models = [m for field in fields for m in _models(field.annotation)]
    return sorted({name for m in models for name in m.model_fields})


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [m for inner in getattr(annotation, "__args__", ()) for m in _models(inner)]


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
