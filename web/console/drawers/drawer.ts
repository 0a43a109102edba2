// Which drawer is open, and what a drawer is given.
import { signal } from "@preact/signals";

export type DrawerName =
  "rate" | "room" | "message" | "fan" | "stock" | "orders" | "settings" | "report" | "jobs" | "reconcile" | "promo"
  | "webhooks" | "codes" | "lottery" | "rehearsal";
export type Args = Record<string, string>;
export interface DrawerProps { eventId: string; args: Args }

export const drawer = signal<{ name: DrawerName; args: Args } | null>(null);

export function openDrawer(name: DrawerName, args: Args = {}): void {
  drawer.value = { name, args };
}

export function closeDrawer(): void {
  drawer.value = null;
}
