"""Builds the package: setuptools, once the generated parts of the clients are made (PEP 517, `pyproject.toml`)."""

from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403 - what is not below is setuptools' own

from tools.clients import parts


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    parts.write()
    return str(build_meta.build_wheel(wheel_directory, config_settings, metadata_directory))


def build_editable(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    parts.write()
    return str(build_meta.build_editable(wheel_directory, config_settings, metadata_directory))
