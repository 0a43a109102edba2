"""Metrics of several processes as one text: the families of all, each sample with the process it comes from."""

from collections.abc import Mapping


def merged(texts: Mapping[str, str]) -> str:
    """Texts in Prometheus' format, by process, as one in which every sample has the label `process`."""
    families: dict[str, list[str]] = {}
    for process, text in texts.items():
        family, is_new = list[str](), True
        for line in text.splitlines():
            if not line.startswith("#"):
                family.append(_labelled(line, process))
                continue
            _, kind, name, *_ = line.split(" ", 3)
            if kind == "HELP":  # begins a family
                is_new = name not in families
                family = families.setdefault(name, [])
            if is_new:
                family.append(line)
    return "".join(f"{line}\n" for family in families.values() for line in family)


def _labelled(sample: str, process: str) -> str:
    name, braces, labels = sample.partition("{")
    if braces:
        return f'{name}{{process="{process}",{labels}'
    name, _, value = sample.partition(" ")
    return f'{name}{{process="{process}"}} {value}'
