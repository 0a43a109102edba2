"""What the feature adds, and where."""

from shared.features import CliCommand, Feature, Ordering

FEATURE = Feature(
    name="lottery",
    what="Draws the order of a line from published data, so that anyone can compute it again.",
    parts={"queue": "features.lottery.queue.draw:PART", "gateway": "features.lottery.gateway:PART"},
    file_parts={"room": "features.lottery.rules:RoomLottery"},
    orderings=[
        Ordering("lottery", "features.lottery.queue.ordering:LOTTERY", "features.lottery.ranking:ranking_of_frame")
    ],
    commands=[
        CliCommand(
            "lottery", "features.lottery.cli:app", "Operate a sale",
            "Draw the lottery of a pre-queue, or verify a published one.",
        )
    ],
)  # fmt: skip
