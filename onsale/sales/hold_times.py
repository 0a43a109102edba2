"""`onsale stock hold-times`: how long fans take from hold to payment, on one screen."""

from typing import Any

from rich.table import Table

from onsale.commands.context import DATA_DIR, DataDir, EventId, Url, ask, out

BAR_CHARS = 30
SHOWN = ("50", "75", "90", "95", "99", "100")


def hold_times(event_id: EventId, url: Url = None, data_dir: DataDir = DATA_DIR) -> None:
    """Show hold times, returning holders, a suggested hold_ttl_s, and conversion by arm."""
    report = ask(url, data_dir, lambda admin: admin.call("GET", f"/admin/inventory/events/{event_id}/hold-times"))
    out.print(_percentiles(report))
    out.print(_histogram(report["to_payment"]["histogram"]))
    out.print(_returning(report["returning"]))
    out.print(_suggestion(report["suggestion"]))
    if report["arms"]:
        out.print(_arms(report))


def _percentiles(report: dict[str, Any]) -> Table:
    table = Table("from hold to", "holds", *(f"p{p}" if p != "100" else "last" for p in SHOWN))
    table.title = f"{report['event_id']}: {report['holds']} holds of {report['fans']} fans"
    for name, title in (("to_payment", "payment begun"), ("to_confirmed", "confirmed")):
        percentiles = report[name]["percentiles_s"]
        cells = [f"{percentiles[p]:g} s" if percentiles else "" for p in SHOWN]
        table.add_row(title, str(report[name]["holds"]), *cells)
    return table


def _histogram(buckets: list[dict[str, Any]]) -> Table:
    most = max((bucket["holds"] for bucket in buckets), default=0) or 1
    last = max((i for i, bucket in enumerate(buckets) if bucket["holds"]), default=-1)
    table = Table("hold to payment begun", "holds", "", show_lines=False)
    for bucket in buckets[: last + 1]:
        to = f"{bucket['to_s']} s" if bucket["to_s"] is not None else "…"
        bar = "█" * round(BAR_CHARS * bucket["holds"] / most)
        table.add_row(f"{bucket['from_s']} to {to}", str(bucket["holds"]), bar)
    return table


def _returning(fans: dict[str, Any]) -> str:
    if fans["share"] is None:
        return "No hold has ended unpaid."
    counts = f"{fans['left']} fans had a hold end unpaid; {fans['returned']} held again"
    return f"{counts} ({_percent(fans['share'])}), {fans['bought']} of them bought."


def _suggestion(found: dict[str, Any]) -> str:
    if found["hold_ttl_s"] is None:
        return f"No suggestion yet: {found['buyers']} bought, it takes {found['buyers_min']}."
    kept = f"{found['kept_percent']} % of {found['buyers']} buyers had begun to pay"
    late = f"{found['late_percent']:g} % came late or extended; those who needed longer still are not seen"
    return f"[bold]hold_ttl_s: {found['hold_ttl_s']}[/] would do (now {found['now_s']}): by then {kept}. {late}."


def _arms(report: dict[str, Any]) -> Table:
    table = Table("arm", "hold_ttl_s", "fans", "bought", "conversion (95 %)", "not counted yet", title="Two arms")
    for arm in report["arms"]:
        conversion = _percent(arm["conversion"]) if arm["conversion"] else ""
        table.add_row(*map(str, (arm["arm"], arm["hold_ttl_s"], arm["fans"], arm["bought"], conversion, arm["open"])))
    more = report["b_minus_a"]
    table.caption = f"b minus a: {_percent(more)}: {more['verdict']}" if more else "Too early to compare."
    return table


def _percent(estimate: dict[str, float]) -> str:
    return f"{estimate['value']:.1%}, {estimate['low']:.1%} to {estimate['high']:.1%}"
