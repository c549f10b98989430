"""The page about monitoring names every event of the log and every metric."""

import re
from pathlib import Path

from trails.model.metrics import CallCount, GraphMetrics, ProcessMetrics, ServerMetrics
from trails.projections.prometheus import project_prometheus

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/monitor.md").read_text(encoding="utf-8")


def test_every_event_is_documented():
    """By its name, or with others of its part (``sandbox.…``)."""
    texts = [each.read_text(encoding="utf-8") for each in (ROOT / "src/trails").rglob("*.py")]
    events = {name for text in texts for name in re.findall(r'"event": "([a-z_.]+)"', text)}
    assert len(events) > 20
    known = set(re.findall(r"`([a-z_.]+)(?:…)?`", PAGE))
    missing = {each for each in events if not {each, f"{each.partition('.')[0]}."} & known}
    assert not missing


def test_every_log_call_names_its_event():
    """A line without one could not be searched for; ``debug`` writes none."""
    calls = re.compile(r"_?log(?:ger)?\.(?:info|warning|error|critical|exception)\(")
    for path in (ROOT / "src/trails").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for found in calls.finditer(text):
            rest = text[found.start() : found.start() + 600]
            assert "extra=" in rest.partition("\n\n")[0], f"{path}: {rest[:80]}"


def test_every_metric_is_documented():
    """Those of the process together, as ``process_…``."""
    process = ProcessMetrics(
        pid=1,
        started=0,
        cpu_seconds=1.5,
        memory_bytes=1,
        threads=1,
        open_files=1,
        responses={200: 1},
    )
    calls = (CallCount("t", "rest", "ok", (1,) * 15, 0.5),)
    found = ServerMetrics(
        version="1",
        project="p",
        time=1.0,
        process=process,
        disk_free_bytes=1,
        graphs=(GraphMetrics(graph="g", calls=calls),),
    )
    names = re.findall(r"^# TYPE (\w+)", project_prometheus(found), re.MULTILINE)
    assert len(names) > 20
    known = set(re.findall(r"`(\w+)`", PAGE))
    assert {each for each in names if not each.startswith("process_")} <= known
    assert "`process_…`" in PAGE
