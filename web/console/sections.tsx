// The sections of the hall: one strip by how much is sold, and the places of each.
import { openDrawer } from "./drawers/drawer";
import { count, percent } from "./format";
import { shown } from "./live";
import { silence, StockBar } from "./tiles";
import type { SectionVitals } from "./documents";

const total = (section: SectionVitals) => section.free + section.held + section.sold;
const heat = (section: SectionVitals) =>
  section.free + section.held === 0 ? 5 : Math.min(4, Math.floor(section.sold / Math.max(1, total(section)) * 5));

export function Sections() {
  const sections = shown.value?.stock.sections ?? [];
  const silent = silence("inventory");
  return (
    <section class={`panel sections${silent ? " stale" : ""}`} aria-labelledby="sections">
      <h2 id="sections">
        Sections <span class="muted">{count(sections.length)}</span>
        {silent && <span class="silent">{silent}</span>}
        <button type="button" class="button small" onClick={() => openDrawer("stock")}>Stock…</button>
      </h2>
      <div class="heat" aria-hidden="true">
        {sections.map((section) => (
          <i key={section.section_id} class={`heat-${heat(section)}`} title={`${section.section_id}: ${percent(section.sold, total(section))} sold`}
            style={{ flexGrow: total(section) }} />
        ))}
      </div>
      <div class="scroll" tabindex={0} role="region" aria-label="Places by section">
        <table>
          <thead><tr><th scope="col">Section</th><th scope="col"><span class="visually-hidden">Share</span></th><th scope="col">Free</th><th scope="col">Held</th><th scope="col">Sold</th></tr></thead>
          <tbody>
            {sections.map((section) => (
              <tr key={section.section_id} data-section={section.section_id}>
                <th scope="row">
                  <button type="button" class="link" onClick={() => openDrawer("stock", { section: section.section_id })}
                    aria-label={`Stock of section ${section.section_id}`}>{section.section_id}</button>
                </th>
                <td class="wide"><StockBar sold={section.sold} held={section.held} total={total(section)} /></td>
                <td class="num">{count(section.free)}</td>
                <td class="num">{count(section.held)}</td>
                <td class="num">{count(section.sold)}</td>
              </tr>
            ))}
          </tbody>
        </table>
        {sections.length === 0 && <p class="muted">The stock is not known yet.</p>}
      </div>
    </section>
  );
}
