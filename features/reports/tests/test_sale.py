"""The figures of a sale that are computed of what the services count."""

from features.reports.sale import SectionDemand, suggest_quantities


def test_the_suggestion_divides_the_tickets_by_demand_and_keeps_their_sum() -> None:
    sections = {
        "sold out in a minute": SectionDemand(sold=100, on_sale=100, selling_s=60),
        "sold out in five": SectionDemand(sold=100, on_sale=100, selling_s=300),
        "slow": SectionDemand(sold=50, on_sale=100, selling_s=600),
        "hardly open": SectionDemand(sold=3, on_sale=40, selling_s=600),
    }
    suggested = suggest_quantities(sections)
    assert suggested["sold out in a minute"] > 2 * suggested["sold out in five"] > 4 * suggested["slow"]
    assert suggested["hardly open"] == 40
    assert sum(suggested.values()) == sum(section.on_sale for section in sections.values())
