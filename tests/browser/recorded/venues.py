"""The events that the recorded answers are about."""

from typing import Any

FLOOR: dict[str, Any] = {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 50, "price_minor": 3000}
VENUES: dict[str, dict[str, Any]] = {
    "orchestra": {
        "name": "An evening with the Northern Lights Orchestra", "venue": "Polar Arena", "timezone": "Asia/Tokyo",
        "sections": [
            {"section_id": "A", "name": "Block A, the northern stand behind the stage", "kind": "seated", "rows": 3,
             "seats_per_row": 12, "price_minor": 31000,
             "price_levels": [{"name": "Front", "rows": [1, 1], "price_minor": 41000}]},
            FLOOR | {"capacity": 900, "price_minor": 6500},
        ],
        "fees": [{"name": "Booking fee", "per": "ticket", "amount_minor": 500}],
    },
    "hall": {
        "sections": [
            {"section_id": "A", "name": "Block A", "kind": "seated", "rows": 6, "seats_per_row": 10,
             "price_minor": 5000, "price_levels": [{"name": "Front", "rows": [1, 1], "price_minor": 9000}]},
            {"section_id": "B", "name": "Block B", "kind": "seated", "rows": 5, "seats_per_row": 8,
             "price_minor": 4000},
            FLOOR,
        ],
    },
    "stalls": {
        "sections": [
            {"section_id": "A", "name": "Stalls", "kind": "seated", "seats_per_row": 4, "seats": "odd from the right",
             "rows": ["B", "A", {"row": "AA", "seats": [1, 2, "2b", 10]}], "price_minor": 5000,
             "price_levels": [{"name": "Front", "rows": ["B", "A"], "price_minor": 9000}]},
            {"section_id": "B", "name": "Box", "kind": "seated", "rows": 2, "seats_per_row": 2, "price_minor": 9000},
        ],
    },
    "floor": {"sections": [FLOOR]},
    "large": {
        "sections": [
            {"section_id": f"S{n:02}", "name": f"Section {n}", "kind": "seated", "rows": 20, "seats_per_row": 25,
             "price_minor": 4000 + 1000 * (n % 4)}
            for n in range(40)
        ],
    },
}  # fmt: skip
