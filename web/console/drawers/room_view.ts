// The waiting room as its API describes it, and the writes that change it.
import { call } from "../api";
import { useResource, type Intent, type Resource } from "../write";

interface Lane {
  lane: number; name: string; weight: number; opens_at: string | null; code_required: boolean; claim: object | null; max_line: number | null;
}
export interface RoomView {
  event_id: string; version: number; state: string; shown_state: string; rate_per_s: number; burst: number;
  max_active: number; message: string | null; ordering: string; active: number; called: number;
  session_s: number; claim_window_s: number; max_line: number | null; stock_coupling: boolean; rollout_percent: number;
  queue_opens_at: string | null; sale_starts_at: string | null; sale_ends_at: string | null;
  lanes: Record<string, Lane>;
  pace: { guard: string; autotune: string; rate_min: number | null; rate_max: number | null };
  entry: { signed_in_only: boolean };
  friction: { proof_of_work: string };
}

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
