/** The server ends every silence after at most 18 s. */
export declare const SILENT_MS = 25000;
/** A problem document, as an exception. `status` is 0 when no answer came: then nobody knows whether the request was executed. */
export declare class Problem extends Error {
    status: number;
    type: string;
    title: string;
    members: Record<string, any>;
    retryAfterS: number | null;
    constructor({ status, type, title, detail, ...members }?: Record<string, any>, retryAfterS?: number | null);
    /** The slug at the end of the type: `seats-taken`. */
    get slug(): string | undefined;
    /** Whether to retry automatically: the server is busy, gave no answer, or still works on the same key. */
    get passing(): boolean;
    /** True when it is unknown whether the server executed the request. */
    get unknown(): boolean;
}
export interface Options {
    /** Credentials are the suite's cookies; otherwise the tokens of the answers. By default: in a browser. */
    cookies?: boolean;
    /** Sent with each request. */
    headers?: Record<string, string>;
    /** Called with each response, and when the request was sent and answered. */
    observe?: (response: Response, sentMs: number, answeredMs: number) => void;
    /** Members of a problem in other words; the problem is undefined if no answer came. */
    explain?: (problem?: Record<string, any>) => Record<string, any> | Promise<Record<string, any>>;
}
export interface Request {
    body?: unknown;
    key?: string;
    proof?: string;
    bearer?: string;
    /** How often to retry while the server is busy or silent. */
    patience?: number;
}
/** A suite at one address. */
export declare class Client {
    #private;
    url: string;
    cookies: boolean;
    constructor(url?: string, options?: Options);
    /** Sends a request and returns the JSON body; throws `Problem`. */
    ask<Answer = any>(method: string, path: string, { patience, ...request }?: Request): Promise<Answer>;
}
/** What the status of a waiting place would say, computed from the public line: position, wait, state and message. Null if
 * the fan has to ask for the status: the line is not long, the place is near its head, or its rank was drawn and is not
 * known yet. `since` is when the fan joined, in ms. */
export declare function placeByLine<Known extends Partial<JoinedAnswer> & Partial<StatusAnswer>>(place: Known, line: LineAnswer, since?: number): (Known & {
    status: "prequeue" | "waiting";
    position_in_queue: number | null;
    head_seq: number;
    estimate_changed: import("./documents").EstimateChanged | null;
    state: "closed" | "draft" | "draining" | "last_chance" | "open" | "paused" | "prequeue" | "sold_out";
    message: string | null;
    estimated_wait_time: null;
    estimated_wait_low: null;
    estimated_wait_high: null;
}) | (Known & {
    status: "prequeue" | "waiting";
    position_in_queue: number | null;
    head_seq: number;
    estimate_changed: import("./documents").EstimateChanged | null;
    state: "closed" | "draft" | "draining" | "last_chance" | "open" | "paused" | "prequeue" | "sold_out";
    message: string | null;
    estimated_wait_time: null;
    estimated_wait_low: number;
    estimated_wait_high: null;
}) | (Known & {
    status: "prequeue" | "waiting";
    position_in_queue: number | null;
    head_seq: number;
    estimate_changed: import("./documents").EstimateChanged | null;
    state: "closed" | "draft" | "draining" | "last_chance" | "open" | "paused" | "prequeue" | "sold_out";
    message: string | null;
    estimated_wait_time: number;
    estimated_wait_low: number;
    estimated_wait_high: number;
}) | null;
/** A fan's place in the line. `queueToken`, `pass` and `checkoutKey` are what the next step needs; with cookies only the last
 * is kept here. */
export declare class Place {
    queueToken?: string;
    pass?: string;
    checkoutKey?: string;
    place: (Partial<JoinedAnswer> & Partial<StatusAnswer>) | null;
    protected joinedMs: number;
    protected client: Client;
    protected event: string;
    constructor(client: Client, eventId: string);
    /** Takes a place in the line. The same `key` gets the same place. `prove` solves a challenge, if the line requires it. */
    join(body?: JoinBody, { key, prove }?: {
        key?: string;
        prove?: (challenge: any) => Promise<string>;
    }): Promise<JoinedAnswer>;
    /** The place now. Asking for it keeps it. */
    status(): Promise<StatusAnswer | null>;
    leave(): Promise<void>;
    /** Turns the call into the pass to buy with. Throws `not-admitted` before the call. */
    claim(): Promise<PassAnswer>;
}
/** One fan of one event, from joining to tickets. */
export declare class Fan extends Place {
    /** Waits for the call, by stream and polls. Far back in a long line, where no stream is live, the polls read the public
     * line. `changed` hears each status. Ends with the last: `ready` or `admitted` if the
     * fan was called, otherwise the wait is over without. */
    wait(changed?: (place: StatusAnswer) => void, { signal }?: {
        signal?: AbortSignal;
    }): Promise<StatusAnswer>;
    sections(): Promise<SectionList>;
    /** Calls `line` and `sections` with what changes, by a stream while there is one, otherwise by polls. Returns what ends it. */
    updates(hear: {
        line?: (frame: any) => void;
        sections?: (frame: any) => void;
    }, changed?: (state: string) => void): () => void;
    /** Holds seats, general admission or the best available, all or nothing. */
    hold(selection: ReserveBody, key?: string): Promise<ReservationView>;
    /** Changes the price types of what is held: of seats that are not named to the usual one. The places and the time stay. */
    changeTypes(held: ReservationView, body: TypesBody): Promise<ReservationView>;
    /** Orders what is held, at the price it is quoted now. One reservation makes one order, however often it is sent. */
    order(held: ReservationView, customer: CustomerDetails, payment: Payment, code?: string | null): Promise<OrderAccepted>;
    /** The order once it is no longer pending; one that waits on the provider's page (`attempt.checkout_url`) goes on pending. */
    settled(order: OrderAccepted, changed?: (now: OrderView) => void): Promise<OrderView>;
    tickets(order: OrderAccepted): Promise<TicketsAnswer>;
}
/** Waits up to half a minute, with jitter: clients that were rejected together must not return together. */
export declare function pause(seconds: number): Promise<void>;
/** A fresh idempotency key. Browsers offer `randomUUID` only over HTTPS and on localhost. */
export declare function freshKey(): string;
/** One EventSource with its state: "live", "reconnecting", "crowded" if the server rejected it, or "polling" if streams
 * do not get through. Its user polls while it is not live. A rejected or broken stream reconnects when the server said.
 * One that is silent for longer than the heartbeat allows is not live. */
export declare class Stream {
    #private;
    url: string;
    handlers: Record<string, (data: any) => void>;
    changed: (state: string) => void;
    state: string;
    heardMs: number;
    /** `handlers`: event names to functions of the parsed data; `changed(state)` is called at interruptions and their end. */
    constructor(url: string, handlers: Record<string, (data: any) => void>, changed?: (state: string) => void);
    open(): void;
    /** Nothing arrived for longer than the server is ever silent: a sleeping phone leaves sockets that look open. */
    get silent(): boolean;
    close(): void;
    /** Called when the stream is found to be dead. */
    reopen(): void;
}
// Generated from the OpenAPI document by `make api-documents`.

/** A discount, a fee or a tax; an `included` one is part of the price already. `percent` is a decimal as text. */
export interface AdjustmentView {
  kind: string;
  name: string;
  percent: string | null;
  amount_minor: number;
  included: boolean;
}

/** The latest payment attempt. `checkout_url` while the buyer has to pay on the provider's page. */
export interface AttemptView {
  n: number;
  status: string;
  reason: string | null;
  checkout_url: string | null;
}

/** The best places next to each other, in one section or anywhere, at most at this price each. */
export interface BestAvailable {
  quantity: number;
  section_id?: string | null;
  max_price_minor?: number | null;
  /** How many of them of which price type; the others are usual. */
  types?: Record<string, any>;
  /** Split into groups if there are not enough adjacent seats. */
  split?: boolean;
  /** How many of them are wheelchair places. */
  wheelchair?: number;
  /** How many of them are for who comes along: one next to each wheelchair place, the others near. */
  companions?: number;
}

/** A picture: its address, which changes with its content, its size in pixels, and what it shows in words. */
export interface ShownPicture {
  url: string;
  width: number;
  height: number;
  alt: string;
}

/** The seller. `stylesheet` has the colours and fonts of the brand; null if it has none. `accent_dark` is never null where `accent` is not. */
export interface BrandDetails {
  name?: string | null;
  logo?: ShownPicture | null;
  accent?: string | null;
  accent_dark?: string | null;
  background?: string | null;
  background_dark?: string | null;
  stylesheet?: string | null;
  help_url?: string | null;
  terms_url?: string | null;
  imprint_url?: string | null;
  privacy_url?: string | null;
}

/** A challenge of ALTCHA: find the number whose hash begins with the key prefix in `parameters`. */
export interface ChallengeAnswer {
  parameters: Record<string, any>;
  signature: string;
}

/** Who buys. Limits per customer count by the e-mail address. */
export interface CustomerDetails {
  name: string;
  email: string;
  /** Refuse an address whose domain looks mistyped with `email-likely-mistyped`, before anything is done. Who is sure sends it again without this. */
  check_spelling?: boolean;
  phone?: string | null;
}

/** Who ordered. */
export interface CustomerView {
  name: string | null;
  email: string | null;
}

/** The right e-mail address of an order. */
export interface EmailChange {
  email: string;
  /** Refuse an address whose domain looks mistyped with `email-likely-mistyped`, before anything is done. Who is sure sends it again without this. */
  check_spelling?: boolean;
}

/** The entrants of one lane: entry numbers 1 to `n`, `taken` of them in use, and the Merkle root over all. */
export interface Entrants {
  n: number;
  taken?: number;
  hash: string;
}

/** Proof that an entry number was counted: `receipt` commits to the holder, `path` leads to the Merkle root. */
export interface EntryProof {
  event_id: string;
  epoch: number;
  lane?: number;
  entry: number;
  entrants_n: number;
  receipt: string;
  path: string[];
}

/** Why the estimate grew or was withdrawn, and when. */
export interface EstimateChanged {
  reason: "rate-lowered" | "throttled" | "recovering" | "room-full" | "fans-returned" | "slower" | "start-moved" | "paused" | "stock-low" | "unknown";
  at: string;
}

/** An event in a list. */
export interface EventCard {
  event_id: string;
  name: string;
  venue: string;
  starts_at: string;
  ends_at?: string | null;
  timezone: string;
  currency: string;
  price_from_minor: number;
  picture?: ShownPicture | null;
}

/** Limits of tickets (0 is unlimited), how long a hold and a payment last, and whether seats may leave one alone. */
export interface EventLimits {
  tickets_per_order: number;
  tickets_per_customer: number;
  tour_tickets_per_customer: number;
  hold_ttl_s: number;
  pay_ttl_s: number;
  single_seats?: "allow" | "tell" | "refuse";
}

/** A price type. The first of an event is the usual one. `sections` and `traits` are where it is sold, empty for everywhere; `lanes` by which lanes fans must have come, empty for all; `proof` is what is shown at the door. */
export interface PriceTypeDetails {
  type_id: string;
  name: string;
  per_order?: number | null;
  proof?: string | null;
  code_required?: boolean;
  lanes?: number[];
  companion_of?: string[];
  sections?: string[];
  traits?: ("wheelchair" | "companion" | "restricted_view" | "easy_access")[];
}

/** Rows, first and last, with a price of their own; they are counted from the front, from 1. `prices` has those of the other price types that are sold there. */
export interface PriceLevelDetails {
  name: string;
  rows: [number, number];
  price_minor: number;
  prices?: Record<string, number>;
}

/** A section with its lowest price, and that of rows in no price level; `rows` and `seats_per_row` are null for general admission. `prices` has those of the other price types for rows in no price level, `traits` what all places of general admission have, or what some of the seats have. */
export interface SectionDetails {
  section_id: string;
  name: string;
  kind: "seated" | "ga";
  type: string;
  capacity: number;
  price_minor: number;
  regular_price_minor: number;
  currency: string;
  price_levels: PriceLevelDetails[];
  prices?: Record<string, number>;
  traits?: ("wheelchair" | "companion" | "restricted_view" | "easy_access")[];
  rows: number | null;
  seats_per_row: number | null;
}

/** An event with its limits and sections. `map_hash` names its map; null if it has too many seats for one. `names` says which names an order must bring: none, the buyer's alone, or one for each ticket; buyers may change them until `names_until`. With `code_opens_places` some places are sold to fans with a code before everybody can buy them, with `lane_opens_places` to fans of a lane. */
export interface EventDetails {
  event_id: string;
  name: string;
  venue: string;
  starts_at: string;
  ends_at?: string | null;
  timezone: string;
  currency: string;
  price_from_minor: number;
  picture?: ShownPicture | null;
  limits: EventLimits;
  names?: "none" | "order" | "ticket";
  names_until?: string | null;
  price_types?: PriceTypeDetails[];
  sections: SectionDetails[];
  map_hash?: string | null;
  brand?: BrandDetails | null;
  code_opens_places?: boolean;
  lane_opens_places?: boolean;
}

/** Events by their start. */
export interface EventPage {
  next: string | null;
  events: EventCard[];
}

/** A fee on top of the tickets; a percentage is of their price after the discount. A free ticket carries no fee per ticket, a free order no fee per order. With `types`, only tickets of these price types count for it and bear it. */
export interface Fee {
  amount_minor?: number | null;
  percent?: number | string | null;
  name: string;
  per?: "ticket" | "order";
  /** Only for tickets of these price types. Default: all. */
  types?: string[];
}

/** Tickets of one GA section. */
export interface GaHeld {
  section_id: string;
  quantity: number;
}

/** Tickets of one GA section and price type. */
export interface GaTickets {
  section_id: string;
  quantity: number;
  /** Default: the usual price type. */
  type_id?: string | null;
}

/** The stage: its centre and its size. */
export interface HallStage {
  at: [number, number];
  size: [number, number];
}

/** What stands on a section's rows, and on their seats in the order of `number`: those of row `n` are `seats[of_rows[n]]`, as rows of the same seats share one list. */
export interface SectionLabels {
  rows: string[];
  seats: string[][];
  of_rows: number[];
}

/** The rows of a section, and how many rows and seats per row there are; `labels` is null where both are counted. `traits` has by trait the first and the last of its seats, which are counted from 0 through all rows. */
export interface SectionRows {
  at: [number, number];
  /** Negative if row 2 lies above row 1. */
  pitch: number;
  spacing: number;
  /** A row bends by curve·u·w where its ends are u and w away. */
  curve?: number;
  angle?: number;
  count: number;
  seats: number;
  labels: SectionLabels | null;
  traits?: Record<"wheelchair" | "companion" | "restricted_view" | "easy_access", [number, number][]>;
}

/** A section on the map; `rows` is null for general admission. */
export interface SectionShape {
  section_id: string;
  outline: [number, number][];
  rows: SectionRows | null;
}

/** The whole map. Seats are in map order: by the sections of this list, then by row, then by number. */
export interface HallGeometry {
  size: [number, number];
  stage: HallStage | null;
  sections: SectionShape[];
}

/** Where the fan came from: the values from the fragment of the fan page's address. */
export interface HandoverBody {
  return_to: string;
  gate: string;
}

/** Sent by a fan who joins. `code` is an access code that opens a lane; it never stands in an address. `from_gate`: a protected site redirected this fan, so the rollout has already selected them to wait. */
export interface JoinBody {
  code?: string | null;
  from_gate?: boolean;
}

/** A place in the line. The same token is also set as an HttpOnly cookie. */
export interface JoinedAnswer {
  /** Null for signed-in fans, whose JWT is enough. */
  queue_token: string | null;
  join_seq: number;
  lane: number;
  /** Null before a lottery is drawn. */
  position_in_queue: number | null;
  /** Only with a lottery: the drawn rank; null before the draw. */
  rank?: number | null;
  /** Seconds; null while unknown or paused. */
  estimated_wait_time: number | null;
  /** Seconds: lower bound of the wait unless something changes. Above a day only this bound is given. */
  estimated_wait_low?: number | null;
  /** Seconds: upper bound of the wait unless something changes. */
  estimated_wait_high?: number | null;
  status: "prequeue" | "waiting" | "ready" | "admitted" | "completed" | "expired" | "left";
  epoch: number;
  /** When to ask for the status first, unless a stream tells it sooner. */
  poll_after_ms: number;
  /** Only far back in a long line: read `GET …/queue`, which a cache may answer, as often as it says, and ask for the status only so often, which shows that the fan is there. From `near_places` on, and as soon as the line has no `heartbeat_after_ms`, ask for the status as before. */
  heartbeat_after_ms?: number | null;
}

/** The places of a reservation to keep; all others are released. */
export interface KeepBody {
  seats?: string[];
  ga?: GaTickets[];
}

/** A lane other than the general one. Its fans are called from `opens_at` on. */
export interface LaneAnswer {
  head_seq: number;
  tail_seq: number;
  /** Null while nobody can know. */
  seconds_per_place: number | null;
  /** Why this last grew or was withdrawn. Nothing new to a fan who joined later, unless it is null. */
  estimate_changed: EstimateChanged | null;
  name: string;
  code_required: boolean;
  opens_at?: string | null;
}

/** Fewer are called than the operator's rate allows: the share that is left, and the reason. */
export interface Throttled {
  factor: number;
  reason: "inventory-slow" | "inventory-silent" | "orders-slow" | "orders-silent" | "easing" | "recovering";
}

/** The public state of the line; what a lane has is that of lane 0. */
export interface LineAnswer {
  head_seq: number;
  tail_seq: number;
  /** Null while nobody can know. */
  seconds_per_place: number | null;
  /** Why this last grew or was withdrawn. Nothing new to a fan who joined later, unless it is null. */
  estimate_changed: EstimateChanged | null;
  state: "draft" | "prequeue" | "open" | "paused" | "draining" | "last_chance" | "sold_out" | "closed";
  epoch: number;
  rate_per_s: number;
  live_ratio: number;
  message: string | null;
  /** Only while the rate is throttled below the configured one. */
  throttled?: Throttled | null;
  sale_starts_at: string | null;
  server_time: string;
  /** When to read it again, unless a stream tells what changed. */
  poll_after_ms: number;
  /** Only while the line is long, else null: how long a fan far back who reads the line may leave the status unasked at most. Ask up to a fifth sooner, at random. */
  heartbeat_after_ms: number | null;
  /** A fan with at most so many places ahead asks for the status. */
  near_places: number;
  /** The bounds of a wait are a factor of e to the power of this, and of 1/√position, away. */
  estimate_band: number;
  /** The lottery's stage, if there is one. */
  lottery?: "open" | "closed" | "drawn" | null;
  /** When the general lane opens, if later than others. */
  opens_at?: string | null;
  /** Other lanes than the general one, if any. */
  lanes?: Record<string, LaneAnswer> | null;
}

/** A ticket with its name; a `void` one admits nobody any more. */
export interface NamedTicket {
  ticket_id: string;
  name: string;
  void: boolean;
}

/** Tickets of one seat, or of one section and price type. `paid_minor` is what they cost together with discounts, fees and taxes. An event without price types has neither `type_id` nor `type_name`. `names` has each ticket with its name where the event asks for one a ticket. */
export interface LineView {
  section_id: string;
  seat_id: string | null;
  quantity: number;
  returned: number;
  unit_price_minor: number;
  paid_minor: number;
  type_id?: string | null;
  type_name?: string | null;
  names?: NamedTicket[];
}

/** The address whose orders' links are to be mailed again. */
export interface LinksRequest {
  email: string;
}

/** A public value drawn with besides the seed: named in advance, unknown to anybody before `known_at`. */
export interface PublicValue {
  what: string;
  known_at: string;
}

/** The rules of the draw, for `ordering: lottery`. Fans who joined before `entry_closes_at` take part. */
export interface LotteryRules {
  entry_closes_at: string;
  public_value: PublicValue;
}

/** New names on tickets, by `ticket_id`; or the one name of an order whose event asks for one an order. */
export interface NamesChange {
  names?: Record<string, any>;
  name?: string | null;
}

/** How to charge: a provider's method, with a token or by redirecting the fan to the provider and back. */
export interface Payment {
  provider?: string;
  method: string;
  token?: string | null;
  return_url?: string | null;
}

/** A purchase of one reservation, at the price the fan was shown. */
export interface NewOrder {
  reservation_id: string;
  expected_total_minor: number;
  currency: string;
  customer: CustomerDetails;
  payment: Payment;
  promo_code?: string | null;
  /** The name on each ticket, in the order of the quote's lines, where the event asks for them. */
  names?: string[];
  /** Of mails and papers; without it, that of the browser: `onsale_lang`, else `Accept-Language`. */
  language?: string | null;
}

/** Another payment attempt. */
export interface NewPayment {
  payment: Payment;
}

/** How many reserved seats are open to a fan, and which of them are free: by section the first and the last, counted from 0 through all rows. */
export interface OpenSeats {
  seats: number;
  free: Record<string, [number, number][]>;
}

/** An accepted order. `order_token` opens it for good; `checkout_url` is where the fan pays, if anywhere. */
export interface OrderAccepted {
  reference: string;
  status: string;
  order_token: string;
  checkout_url: string | null;
  expires_at: string;
  expires_in_seconds: number;
  poll_url: string;
  updates_url: string;
}

/** An order as its buyer reads it. Amounts are minor units of `currency`, times RFC 3339 texts. `language` is that of its mails and papers. `mail_failed`: a mail about it was given up, and none was sent since. `dispute` is the buyer's dispute of the payment (open, won or lost by the seller), and `disputed_minor` what the provider has withdrawn for it. */
export interface OrderView {
  reference: string;
  event_id: string;
  reservation_id: string;
  status: string;
  progress: string | null;
  total_minor: number;
  currency: string;
  charged_minor: number;
  refunded_minor: number;
  refunding_minor: number;
  disputed_minor?: number;
  dispute?: string | null;
  lines: LineView[];
  extras: AdjustmentView[];
  customer: CustomerView;
  mail_failed?: boolean;
  language: string;
  created_at: string;
  expires_at: string;
  expires_in_seconds: number;
  confirmed_at: string | null;
  fulfilled_at: string | null;
  cancel_asked: boolean;
  extended: boolean;
  oversold: boolean;
  end_reason: string | null;
  attempt: AttemptView | null;
}

/** A customer's orders, newest first. */
export interface OrdersPage {
  page: number;
  page_size: number;
  orders: OrderView[];
}

/** The pass to buy with. It is also set as an HttpOnly cookie. */
export interface PassAnswer {
  pass: string;
  expires_at: string;
  /** The same for every claim of this pass; use it as the first half of an Idempotency-Key. */
  checkout_key: string;
  status?: "admitted";
}

/** A tax on tickets and fees. `included`: their prices contain it and it is only shown; otherwise it is added. */
export interface Tax {
  name: string;
  percent: number | string;
  included?: boolean;
  /** Only for tickets of these price types. Default: all. */
  types?: string[];
}

/** An event's fees and taxes, and the prices asked for with all of them, in minor units. */
export interface PricesAnswer {
  fees?: Fee[];
  taxes?: Tax[];
  /** By price: one ticket with everything in it. */
  all_in?: Record<string, number>;
  /** The same by price type, where one was named. */
  all_in_by_type?: Record<string, Record<string, number>>;
  /** One order of all lines that were asked about. */
  together_minor?: number | null;
}

/** One kind of problem document: what it means. */
export interface ProblemEntry {
  slug: string;
  status: number;
  title: string;
  more: string;
  retry_after_s: number | null;
  service: string | null;
}

/** All kinds of problem documents, sorted by slug. */
export interface ProblemCatalogue {
  problems: ProblemEntry[];
}

/** A payment provider and its methods. */
export interface ProviderAnswer {
  name: string;
  methods: string[];
}

/** The payment providers that may be used. */
export interface ProvidersAnswer {
  providers: ProviderAnswer[];
}

/** An Ed25519 public key as a JWK (RFC 8037). */
export interface PublicKey {
  kty: string;
  crv: string;
  x: string;
  kid: string;
  use: string;
  alg: string;
}

/** A JWK set. */
export interface PublicKeys {
  keys: PublicKey[];
}

/** A null field is not decided yet. `seed` stays secret until the draw; `commitment` is its SHA-256. */
export interface PublishedLottery {
  event_id: string;
  epoch: number;
  stage: string;
  algorithm?: string;
  commitment: string;
  committed_at: string;
  queue_opens_at?: string | null;
  rules: LotteryRules;
  closed_at?: string | null;
  entrants?: Record<string, Entrants>;
  counted_at?: string | null;
  public_value?: string | null;
  seed?: string | null;
  drawn_at?: string | null;
}

/** What the reservation costs with discounts, fees and taxes, in minor units. `names` says which names its order must bring: none, the customer's alone (`order`), or one for each ticket (`ticket`), in the order of `lines`. */
export interface QuoteAnswer {
  reservation_id: string;
  total_minor: number;
  currency: string;
  lines: LineView[];
  extras: AdjustmentView[];
  names?: "none" | "order" | "ticket";
}

/** A reservation to price, with a promo code if there is one. */
export interface QuoteRequest {
  reservation_id: string;
  promo_code?: string | null;
}

/** The hold that reminders are sent for. */
export interface ReminderAnswer {
  reservation_id: string;
}

/** The holder's consent to two mails about this hold. */
export interface ReminderRequest {
  reservation_id: string;
  email: string;
}

/** Seats that this choice left without an available neighbour in their row, and as many seats that would have left none: all of the choice, null if there is no such choice. */
export interface SingleSeatsView {
  left_alone: string[];
  better: string[] | null;
}

/** A seat, or tickets of one GA section and price type; `type_id` is null where the event has no price types. `prices` are those of all price types that are sold at the place, empty where the event has none. */
export interface TicketView {
  section_id: string;
  seat_id: string | null;
  quantity: number;
  type_id: string | null;
  unit_price_minor: number;
  prices?: Record<string, number>;
}

/** A reservation. `ga_section` and `ga_quantity` repeat the first entry of `ga`; `tickets` has all of it at its prices. `single_seats` is only in the answer to the request that left seats alone, else null. */
export interface ReservationView {
  reservation_id: string;
  reserved_until: string;
  seats: string[];
  ga_section: string | null;
  ga_quantity: number;
  ga: GaHeld[];
  tickets: TicketView[];
  total_amount_minor_units: number;
  currency: string;
  status: "pending_payment" | "paying" | "confirmed" | "returned" | "expired" | "cancelled";
  single_seats: SingleSeatsView | null;
}

/** Seats, GA tickets or both, or else the best available places. `ga_section` and `ga_quantity` are short for one entry of `ga`. */
export interface ReserveBody {
  seats?: string[];
  ga?: GaTickets[];
  /** The price type of seats; the others are of the usual one. */
  types?: Record<string, any>;
  /** Opens price types and places that need a code. */
  code?: string | null;
  ga_section?: string | null;
  ga_quantity?: number | null;
  best_available?: BestAvailable | null;
  email?: string | null;
  /** Consent to reminder mail before the hold ends and after it has expired. */
  reminders?: boolean;
}

/** The address to send the fan to. */
export interface ReturnLink {
  location: string;
  /** Seconds for which the code in the address works. */
  good_for_s: number;
}

/** One seat: what stands on its row (`row`) and on the chair (`label`), and its number in the row from the left; the prices of the price types besides the usual one that are sold there. */
export interface SeatView {
  seat_id: string;
  row: string;
  label?: string;
  number: number;
  status: "available" | "reserved" | "sold" | "blocked";
  price_minor: number;
  prices?: Record<string, number>;
  traits?: ("wheelchair" | "companion" | "restricted_view" | "easy_access")[];
}

/** Some seats of a section; a GA section has none. */
export interface SeatPage {
  section_id: string;
  total_seats: number;
  page: number;
  page_size: number;
  seats: SeatView[];
}

/** A section, what is available, held, and reserved for who names a code or came by a lane, and its lowest price. */
export interface SectionAvailability {
  section_id: string;
  name: string;
  kind: "seated" | "ga";
  type: string;
  total_seats: number;
  available_seats: number;
  held_seats: number;
  reserved_seats?: number;
  price_minor: number;
  currency: string;
}

/** A price type of which there is a number in all, and how many of it are left. */
export interface TypeAvailability {
  type_id: string;
  available: number;
}

/** The sections of an event, and its price types of which there is a number in all. */
export interface SectionList {
  sections: SectionAvailability[];
  types?: TypeAvailability[];
}

/** The show that tickets are for; `when` is its local time in words. */
export interface ShowAnswer {
  event_id: string;
  name: string;
  venue: string;
  when: string;
}

/** The state of the place after the release. */
export interface SlotReleased {
  status: "prequeue" | "waiting" | "ready" | "admitted" | "completed" | "expired" | "left";
}

/** The status of a place. Each request for it is also a heartbeat of the place. */
export interface StatusAnswer {
  status: "prequeue" | "waiting" | "ready" | "admitted" | "completed" | "expired" | "left";
  join_seq: number;
  /** Never rises; an upper bound, as silent places are skipped. Null before a lottery is drawn. */
  position_in_queue: number | null;
  /** Only with a lottery: the drawn rank; null before the draw. */
  rank?: number | null;
  /** Seconds; null while unknown, while nobody is called, and above a day. Never grows without `estimate_changed`. */
  estimated_wait_time: number | null;
  /** Seconds: lower bound of the wait unless something changes. Above a day only this bound is given. */
  estimated_wait_low?: number | null;
  /** Seconds: upper bound of the wait unless something changes. */
  estimated_wait_high?: number | null;
  estimate_changed?: EstimateChanged | null;
  head_seq: number;
  /** The state of the line, as in `GET …/queue`. */
  state: "draft" | "prequeue" | "open" | "paused" | "draining" | "last_chance" | "sold_out" | "closed";
  /** When to ask next. Grows with the line, so that its polls stay bounded. */
  poll_after_ms: number;
  /** Only far back in a long line: read `GET …/queue`, which a cache may answer, as often as it says, and ask for the status only so often, which shows that the fan is there. From `near_places` on, and as soon as the line has no `heartbeat_after_ms`, ask for the status as before. */
  heartbeat_after_ms?: number | null;
  message: string | null;
  /** Only when called: the time to claim the pass by. Only when admitted: the end of the session. */
  until?: string | null;
  /** Only when expired: the call was not claimed in time, or the session ran out. */
  why?: "unclaimed" | "session" | null;
}

/** A ticket; `code` is what a scanner reads, none for a void ticket. `proof` is what is shown with it at the door because of its price type, `name` who comes with it, if the event asks for names. */
export interface TicketAnswer {
  ticket_id: string;
  section_id: string;
  seat_id: string | null;
  place: string;
  type_id?: string | null;
  type_name?: string | null;
  proof?: string | null;
  status: string;
  void_at: string | null;
  code: string | null;
  name?: string | null;
}

/** The tickets of an order. `window_s` is how long a code is valid before it must be fetched again, 0 for ever. `names` says which names are on them: none, the customer's (`order`), or one of each (`ticket`); the buyer may change them until `names_until`. */
export interface TicketsAnswer {
  reference: string;
  event: ShowAnswer;
  window_s: number;
  names?: "none" | "order" | "ticket";
  names_until?: string | null;
  tickets: TicketAnswer[];
}

/** The price types of all tickets of a reservation: of seats that are not named the usual one; of general admission each section with all of its tickets. */
export interface TypesBody {
  /** The price type of seats; the others are of the usual one. */
  types?: Record<string, any>;
  ga?: GaTickets[];
  /** Opens price types and places that need a code. */
  code?: string | null;
}
