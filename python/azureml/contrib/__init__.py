"""A part of a name that Azure's packages share: what is installed under it is found as well."""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)
