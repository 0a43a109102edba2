// The drawer of controls at the right of the screen, and the row of buttons that opens it.
import { useSignal } from "@preact/signals";
import type { FunctionComponent } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { session, vitals } from "../live";
import { may } from "../problem";
import { AccessCodes } from "./codes";
import { closeDrawer, drawer, openDrawer, type Args, type DrawerName, type DrawerProps } from "./drawer";
import { FanEye } from "./fan_eye";
import { Jobs } from "./jobs";
import { Lottery } from "./lottery";
import { Message } from "./message";
import { Orders } from "./orders";
import { Promo } from "./promo";
import { Rate } from "./rate";
import { Reconcile } from "./reconcile";
import { Rehearsal } from "./rehearsal";
import { Report } from "./report";
import { Room } from "./room";
import { Settings } from "./settings";
import { Stock } from "./stock";
import { Webhooks } from "./webhooks";
import "./drawers.css";

const DRAWERS: Record<DrawerName, [string, FunctionComponent<DrawerProps>]> = {
  rate: ["Rate of admission", Rate],
  room: ["Waiting room", Room],
  message: ["Message to the line", Message],
  fan: ["What a fan sees", FanEye],
  stock: ["Stock", Stock],
  orders: ["Orders", Orders],
  settings: ["Lanes, pace, times", Settings],
  report: ["Report and tables", Report],
  jobs: ["Checkouts, failed steps", Jobs],
  reconcile: ["Differences, oversells", Reconcile],
  promo: ["Promo codes", Promo],
  codes: ["Access codes", AccessCodes],
  webhooks: ["Webhooks", Webhooks],
  lottery: ["Lottery", Lottery],
  rehearsal: ["Rehearsal", Rehearsal],
};
const FIRST: DrawerName[] = ["rate", "message", "orders", "stock"];
const MORE: DrawerName[] = ["room", "fan", "settings", "codes", "promo", "lottery", "report", "webhooks", "jobs", "reconcile", "rehearsal"];
const SHORT: Partial<Record<DrawerName, string>> = { rate: "Rate", message: "Message" };

// A modal dialog: the browser keeps the focus inside and gives it back to where it was.
export function Drawer({ eventId }: { eventId: string }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const shown = drawer.value;
  useLayoutEffect(() => {
    const element = dialog.current;
    if (!element) return;
    if (shown && !element.open) element.showModal();
    else if (!shown && element.open) element.close();
    if (shown) element.querySelector<HTMLElement>("[data-first], form input:enabled, form textarea:enabled")?.focus();
  }, [shown]);
  useEffect(() => closeDrawer, []);
  const closed = () => { if (!dialog.current?.open) closeDrawer(); }; // told a moment later: the next may be open by then
  const [title, Content] = shown ? DRAWERS[shown.name] : ["", null];
  return (
    <dialog ref={dialog} class="drawer" aria-labelledby="drawer-title" data-drawer={shown?.name}
      onClose={closed}
      onClick={(event) => { if (event.target === event.currentTarget) closeDrawer(); }}>
      {shown && Content && (
        <div class="drawer-inside">
          <header>
            <h2 id="drawer-title">{title}</h2>
            <button type="button" class="button" onClick={closeDrawer} aria-label="Close">✕</button>
          </header>
          {!may("operator") && (
            <p class="outcome warn" data-why-not>You are signed in as {session.value?.role}: you see everything here and change nothing.</p>
          )}
          <Content key={JSON.stringify(shown)} eventId={eventId} args={shown.args} />
        </div>
      )}
    </dialog>
  );
}

export function ControlBar(_: { eventId: string }) {
  const menu = useSignal(false);
  const box = useRef<HTMLDivElement>(null);
  const state = vitals.value?.room.state;
  const next = state === "paused" ? "Resume…" : state === "draft" || state === "closed" ? "Open…" : "Pause…";
  const open = (name: DrawerName, args?: Args) => {
    menu.value = false;
    openDrawer(name, args);
  };
  useEffect(() => {
    const leave = (event: Event) => { if (!box.current?.contains(event.target as Node)) menu.value = false; };
    addEventListener("pointerdown", leave);
    addEventListener("focusin", leave);
    return () => { removeEventListener("pointerdown", leave); removeEventListener("focusin", leave); };
  }, []);
  const escape = (event: KeyboardEvent) => {
    if (event.key !== "Escape" || !menu.value) return;
    event.preventDefault();
    menu.value = false;
    box.current?.querySelector("button")?.focus();
  };
  return (
    <nav class="controls" aria-label="Controls">
      <button type="button" class={next === "Pause…" ? "button danger" : "button primary"} disabled={!may("operator")}
        title={may("operator") ? "" : "Your role may only look"} onClick={() => open("room")}>{next}</button>
      {FIRST.map((name) => (
        <button type="button" class="button" key={name} onClick={() => open(name)}>{SHORT[name] ?? DRAWERS[name][0]}</button>
      ))}
      <div class="more" ref={box} onKeyDown={escape}>
        <button type="button" class="button" aria-expanded={menu.value} aria-controls="more-controls"
          onClick={() => { menu.value = !menu.value; }}>More <span aria-hidden="true">▾</span></button>
        <ul id="more-controls" class="panel" hidden={!menu.value}>
          {MORE.map((name) => (
            <li key={name}><button type="button" class="button" onClick={() => open(name)}>{DRAWERS[name][0]}</button></li>
          ))}
        </ul>
      </div>
      {!may("operator") && session.value && <span class="muted">Role {session.value.role}: look only</span>}
    </nav>
  );
}
