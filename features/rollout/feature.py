"""What the feature adds, and where."""

from shared.features import Feature

FEATURE = Feature(
    name="rollout",
    what="Sends only a share of the fans through the waiting room; the others pass the line by.",
    parts={"queue": "features.rollout.queue.bypass:PART", "gateway": "features.rollout.gateway:PART"},
    file_parts={
        "room": "features.rollout.rules:RoomRollout",
        "room_patch": "features.rollout.rules:RoomRolloutPatch",
    },
)
