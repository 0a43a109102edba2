// The processes that report their load, and the fans' open streams.
import { count, duration, rate } from "./format";
import { clockMs, processes, shown } from "./live";

const WORDS = { up: "up", busy: "busy", silent: "silent" };

export function Processes() {
  const streams = shown.value?.streams;
  const found = processes.value;
  return (
    <section class="panel processes" aria-labelledby="processes">
      <h2 id="processes">Processes <span class="muted num">{count(streams?.open)} streams{!!streams?.turned_away && `, ${count(streams.turned_away)} turned away`}</span></h2>
      <div class="scroll" tabindex={0} role="region" aria-label="Load of each process">
        <table>
          <thead><tr><th scope="col">Process</th><th scope="col">State</th><th scope="col">Writes/s</th><th scope="col">95 %</th></tr></thead>
          <tbody>
            {found.map((process) => (
              <tr key={process.process} class={`process-${process.state}`}>
                <th scope="row" title={process.process}>{process.service}<span class="muted"> {process.process.slice(-4)}</span></th>
                <td><i class="dot" aria-hidden="true" />{process.state === "silent"
                  ? `silent ${duration(Math.round((clockMs.value - process.heard_ms) / 1000))}` : WORDS[process.state]}</td>
                <td class="num">{rate(process.writes_per_s)}</td>
                <td class="num">{process.p95_ms === null ? "–" : `${count(process.p95_ms)} ms`}</td>
              </tr>
            ))}
          </tbody>
        </table>
        {found.length === 0 && <p class="muted">No process was heard yet.</p>}
      </div>
    </section>
  );
}
