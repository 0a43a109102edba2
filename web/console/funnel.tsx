// How far fans came: from joining the line to a confirmed order.
import { count, sentence, UNKNOWN } from "./format";
import { shown } from "./live";
import type { FunnelStep } from "./documents";

export function Funnel() {
  const steps = shown.value?.funnel ?? [];
  const most = Math.max(1, ...steps.map((step) => step.fans ?? 0));
  return (
    <section class="panel funnel" aria-labelledby="funnel">
      <h2 id="funnel">Fans, step by step</h2>
      <ol>
        {steps.map((step, index) => (
          <li key={step.name} data-step={step.name}>
            <span>{sentence(step.name)}</span>
            <span class="bar" aria-hidden="true"><i style={{ inlineSize: `${(step.fans ?? 0) / most * 100}%` }} /></span>
            <b class="num">{count(step.fans)}</b>
            <span class="muted num drop">{lost(steps[index - 1], step)}</span>
          </li>
        ))}
      </ol>
    </section>
  );
}

// What share of the step before did not come this far.
function lost(before: FunnelStep | undefined, step: FunnelStep): string {
  if (!before) return "";
  if (!before.fans || step.fans === null) return UNKNOWN;
  const share = Math.round((1 - step.fans / before.fans) * 100);
  return share > 0 ? `−${share} %` : "all";
}
