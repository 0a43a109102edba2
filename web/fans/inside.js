// What only fans with a place need: choosing, holding, paying. A part of its own, so that the first view is small.
export { Best } from "./best.js";
export { Choosing } from "./choosing.js";
export { Hold } from "./hold.js";
