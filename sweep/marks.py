"""Points of interest on a map: the accelerator generations, each with the port that it ships with."""

from typing import NamedTuple

from . import presets

HEADLINE = ("tokens_per_domain", "achieved_tflops")  # x and y of the headline map
GENERATIONS = ("v100", "a100", "h100", "b200", "b300", "gb200", "gb300")
GENERATIONS_NOTE = "generations at 40 % of the 16-bit peak and 8,192 tokens per 8 GPUs (\u00d772: a domain of 72), "


class Mark(NamedTuple):
    """A point of interest: a label, where it sits in the units of x and y, and the port it ships with (Gb/s, or None)."""

    label: str
    x: float
    y: float
    port: float | None = None


def generations(names=GENERATIONS, tokens=8192, efficiency=0.4):
    """Accelerators as marks: ``tokens`` per eight GPUs (one tp 8 replica), ``efficiency`` of the 16-bit peak, the shipped port."""
    marks = []
    for name in names:
        numbers = presets.find("accelerator", name).numbers
        peak = numbers["peak_tflops"]
        peak = peak["bf16"] if isinstance(peak, dict) else peak
        domain = numbers.get("scaleup_domain", 8)
        label = name.upper() if domain == 8 else f"{name.upper()} \u00d7{domain:g}"
        marks.append(Mark(label, tokens * domain / 8, efficiency * peak, numbers.get("link_gbps")))
    return tuple(marks)
