"""What the feature adds, and where."""

from shared.features import Feature

FEATURE = Feature(
    name="proof_of_work",
    what="Makes newcomers compute for a moment before they join, so that a swarm of bots is slow and costly.",
    parts={"gateway": "features.proof_of_work.gateway:PART"},
    file_parts={
        "room": "features.proof_of_work.rules:RoomFriction",
        "room_patch": "features.proof_of_work.rules:RoomFrictionPatch",
    },
)
