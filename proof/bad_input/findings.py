"""What was tried and what was found: numbers, and the first example of each fault."""

from dataclasses import dataclass, field


@dataclass
class Findings:
    """`faults` has an example for each fault; a fault that was found again is one."""

    counts: dict[str, int] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)

    def count(self, what: str, number: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + number

    def add(self, where: str, fault: str, example: str) -> None:
        if (name := f"{where}: {fault}") not in self.faults:
            self.faults[name] = example
            print(f"  found: {name}", flush=True)

    def sentences(self, command: str) -> list[str]:
        return [f"{fault}. {example} Again: {command}" for fault, example in self.faults.items()]
