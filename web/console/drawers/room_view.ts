// The waiting room as its API describes it, and the writes that change it.
import { call } from "../api";
import type { RoomView } from "../documents";
import { useResource, type Intent, type Resource } from "../write";

export const roomPath = (eventId: string): string => `/admin/events/${eventId}/room`;
export const useRoom = (eventId: string): Resource<RoomView> => useResource<RoomView>(roomPath(eventId));

// Changes the room's settings, if nobody else changed the room since it was read.
export async function patchRoom(room: Resource<RoomView>, changes: object, { key, reason }: Intent): Promise<RoomView> {
  const path = roomPath(room.data.value!.event_id);
  const answer = await call<RoomView>("PATCH", path, { body: { ...changes, reason }, etag: room.etag.value, key });
  room.take(answer);
  return answer.data;
}

// Sends an action such as `pause`, under the same condition.
export async function actOnRoom(room: Resource<RoomView>, action: string, { key, reason }: Intent, more: object = {}): Promise<RoomView> {
  const path = `${roomPath(room.data.value!.event_id)}/${action}`;
  const answer = await call<RoomView>("POST", path, { body: { ...more, reason }, etag: room.etag.value, key });
  room.take(answer);
  return answer.data;
}
