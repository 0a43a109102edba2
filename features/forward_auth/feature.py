"""What the feature adds, and where."""

from shared.features import Feature

FEATURE = Feature(
    name="forward_auth",
    what="Lets a waiting room stand in front of any site: its proxy asks about each request whether it may pass.",
    parts={"gateway": "features.forward_auth.gateway.api:PART", "queue": "features.forward_auth.queue:PART"},
    file_parts={
        "room": "features.forward_auth.rules:RoomGate",
        "room_patch": "features.forward_auth.rules:RoomGatePatch",
    },
)
