// From an operator's click until the line obeys: until the figures show the changed settings in force.
import { useSignal, type Signal } from "@preact/signals";
import { onVitals } from "../live";
import type { RoomView, Vitals } from "../documents";

const OBEYS_WITHIN_MS = 10_000;

// Sends a change of the room and says how long the line took to obey it. The version of the figures is of the settings
// by which the gatekeeper calls; `inForce` says what else they must show.
export type Obeying = (send: () => Promise<RoomView>, inForce?: (found: Vitals, wanted: RoomView) => boolean) => Promise<RoomView>;

export function useObeyed(): [Signal<string | null>, Obeying] {
  const words = useSignal<string | null>(null);
  return [words, async (send, inForce = () => true) => {
    const clickedMs = performance.now();
    const heard: { found: Vitals; ms: number }[] = []; // the figures may come before the answer
    let wanted: RoomView | null = null;
    words.value = "Waits for the line to obey…";
    const check = () => {
      const first = wanted && heard.find(({ found }) => (found.room.version ?? -1) >= wanted!.version && inForce(found, wanted!));
      if (!first) return;
      end();
      words.value = `Obeyed after ${((first.ms - clickedMs) / 1000).toFixed(1)} s.`;
    };
    const deafen = onVitals((found) => {
      heard.push({ found, ms: performance.now() });
      check();
    });
    const timer = setTimeout(() => { end(); words.value = "The line has not obeyed within 10 s: look at the processes."; }, OBEYS_WITHIN_MS);
    const end = () => { deafen(); clearTimeout(timer); };
    try {
      wanted = await send();
      check();
      return wanted;
    } catch (failed) {
      end();
      words.value = null;
      throw failed;
    }
  }];
}

export const Obeyed = ({ words }: { words: Signal<string | null> }) => <p role="status" class="obeyed" data-obeyed>{words.value}</p>;
