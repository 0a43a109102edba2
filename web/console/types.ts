// What the console's service answers: the types of shared/contracts/admin/console.py, field for field. Null means unknown.

export type Part = "queue" | "inventory" | "orders" | "notifier";
export type Role = "viewer" | "operator" | "admin";
export type RoomState = "draft" | "prequeue" | "open" | "paused" | "draining" | "last_chance" | "sold_out" | "closed";
export type Severity = "critical" | "warning" | "info";
export type Figure = number | null;

export interface Session { name: string; role: Role; expires_at: string }

export interface LineVitals {
  waiting: Figure; head: Figure; tail: Figure; live_share: Figure;
  called: Figure; claimed: Figure; missed_calls: Figure;
}
export interface RateVitals {
  set_per_s: Figure; effective_per_s: Figure; called_per_s: Figure; claimed_per_s: Figure; why: string | null;
}
export interface RoomVitals {
  state: RoomState | null; version: number | null; active: Figure; max_active: Figure; message: string | null;
}
export interface WaitVitals { p50_s: Figure; p95_s: Figure }
export interface SectionVitals { section_id: string; free: number; held: number; sold: number }
export interface StockVitals {
  free: Figure; held: Figure; paying: Figure; sold: Figure; total: Figure; oldest_hold_s: Figure;
  sections: SectionVitals[];
}
export interface SellVitals { per_min: Figure; out_s: Figure; out_earliest_s: Figure; out_latest_s: Figure }
export interface OrderVitals {
  pending: Figure; confirmed: Figure; confirmed_per_s: Figure; due: Figure; oldest_due_s: Figure; in_review: Figure;
  declines: Record<string, number>;
}
export interface FunnelStep { name: string; fans: Figure }
export interface StreamVitals { open: Figure; turned_away: Figure }
export interface ProofVitals {
  oversold: Figure; duplicates: Figure; inversions: Figure; charged_twice: Figure; at_ms: number | null;
}

export interface Vitals {
  event_id: string;
  at_ms: number;
  ages: Record<Part, number | null>;
  room: RoomVitals;
  line: LineVitals;
  rate: RateVitals;
  wait: WaitVitals;
  stock: StockVitals;
  sell: SellVitals;
  orders: OrderVitals;
  funnel: FunnelStep[];
  streams: StreamVitals;
  proof: ProofVitals;
}

export interface PastAlarm extends ActiveAlarm { ended_ms: number | null }
export interface ActiveAlarm {
  name: string; severity: Severity; summary: string; meaning: string; check_first: string; do: string; since_ms: number;
}

export interface Process {
  service: string; process: string; state: "up" | "busy" | "silent";
  writes_per_s: Figure; p95_ms: Figure; heard_ms: number;
}

export interface Change {
  service: string; id: number; at_ms: number; actor: string; action: string; subject: string; reason: string | null;
  before: Record<string, unknown> | null; after: Record<string, unknown> | null;
}

// A request for a second person's approval; its call is told to who asked for it, once it is approved.
export interface ApprovedCall { path: string; body: string; idempotency_key: string | null; if_match: string | null; approval: string }
export interface Approval {
  id: string; control: string; role: "operator" | "admin"; reason: string; figures: Record<string, unknown>; requested_by: string;
  status: "pending" | "approved" | "refused"; decided_by: string | null; expires_ms: number; call: ApprovedCall | null;
}

export interface Snapshot {
  name: string; venue: string; starts_at: string | null; currency: string | null;
  vitals: Vitals; alarms: ActiveAlarm[]; processes: Process[]; changes: Change[]; approvals: Approval[];
}

export interface EventOverview {
  event_id: string; name: string; state: RoomState | null; waiting: Figure; sold: Figure; total: Figure; alarms: number;
}
export interface EventList { events: EventOverview[] }

export interface VitalsHistory { at_ms: number[]; series: Record<string, Figure[]>; alarms: PastAlarm[] }

export interface EstimateChange { reason: string; at: string }
export interface FanView {
  status: string; position_in_queue: number | null; estimated_wait_low: number | null; estimated_wait_high: number | null;
  estimate_changed: EstimateChange | null; state: RoomState; message: string | null;
}

export interface RehearsalResult {
  fans: number; seconds: number; joined: number; called: number; held: number; bought: number; gave_up: number;
  empty_handed: number; tickets_sold: number; capacity: number; oversold: number; inversions: number;
  duplicate_numbers: number; wait_p50_s: Figure; wait_p95_s: Figure; invariants: number; broken: string[]; failures: string[];
}
export interface Rehearsal {
  event_id: string; state: "running" | "done" | "failed" | "stopped" | "lost"; fans: number; reason: string;
  started_by: string; started_at: string; ended_at: string | null; process: string; copy_id: string | null;
  left_out: string[]; progress: Record<string, number>; result: RehearsalResult | null; detail: string | null;
}
