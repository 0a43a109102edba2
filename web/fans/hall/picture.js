// Where somebody's places are: a small drawing of the hall with their sections and seats marked, and the same in words.
import { element } from "../dom.js";
import { seat as seatName } from "../format.js";
import { fill } from "../words.js";
import { svg } from "./svg.js";

const MARK_SHARE = 0.011;

export class Picture {
  constructor({ geometry, stock }) {
    Object.assign(this, { geometry, stock });
    this.node = element("figure", { class: "hall-picture", id: "held-hall" });
  }

  render({ seats = [], ga = [] }) {
    const { geometry } = this;
    const [width, height] = [geometry.width, geometry.height];
    const size = Math.max(width, height) * MARK_SHARE;
    const names = [...seats.map((id) => seatName(id, this.stock.sections)), ...ga.map(({ section_id: id }) => this.stock.sections.get(id)?.name ?? id)];
    const mine = new Set([...seats.map((id) => id.split("-")[0]), ...ga.map(({ section_id: id }) => id)]);
    const words = fill(texts.hall_picture, { seats: names.join("; ") });
    const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": words });
    const { stage } = geometry;
    if (stage) {
      const [x, y] = [stage.at[0] - stage.size[0] / 2, stage.at[1] - stage.size[1] / 2];
      drawing.append(svg("rect", { x, y, width: stage.size[0], height: stage.size[1], class: "hall-stage-shape" }));
    }
    for (const { id, outline } of geometry.sections) {
      const shape = svg("path", { d: `M${outline.map((point) => point.join(" ")).join("L")}Z`, class: "hall-section" });
      if (mine.has(id)) shape.dataset.mine = "";
      drawing.append(shape);
    }
    for (const seat of seats.map((id) => geometry.seatOf(id)).filter((n) => n >= 0)) {
      drawing.append(svg("circle", { cx: geometry.x[seat], cy: geometry.y[seat], r: size, class: "hall-mark" }));
    }
    this.node.replaceChildren(drawing, element("figcaption", { class: "small", "aria-hidden": "true" }, texts.hall_picture_caption));
  }
}
