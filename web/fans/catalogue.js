// The front page. The server lists the events; the script gives each its colour, and asks again while there is no list.
import { pause } from "./api.js";
import { byId, paint } from "./dom.js";

const AGAIN_S = 3;

for (const poster of document.querySelectorAll(".poster")) paint(poster, poster.dataset.event);
if (!byId("loading").hidden) pause(AGAIN_S).then(() => location.reload());
