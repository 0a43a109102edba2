// The modules that parts of the page, which load later, take from it instead of having their own: one clock, one voice.
import * as api from "./api.js";
import * as clock from "./clock.js";
import * as dom from "./dom.js";
import * as format from "./format.js";
import * as limits from "./limits.js";
import * as memory from "./memory.js";
import * as price from "./price.js";
import * as words from "./words.js";

globalThis.onsale = { api, clock, dom, format, limits, memory, price, words };
