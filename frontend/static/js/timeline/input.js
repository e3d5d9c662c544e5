// Keys, wheel and pointer on the lanes, turned into what the viewer does.
import { isTyping, keysAreOn } from "../keys.js";

/**
 * @typedef {object} Actions
 * @property {(factor: number, x: number) => void} zoom around a pixel of the canvas
 * @property {(pixels: number) => void} pan
 * @property {(pixels: number) => void} scroll
 * @property {(x: number, y: number) => void} select
 * @property {(x: number, y: number) => void} point
 * @property {(lanes: number, slices: number) => boolean} step to a neighbour of the selection; false if there is none
 * @property {(x: number, y: number) => void} open zoom to the slice at a pixel
 * @property {() => boolean} enter select a slice in view
 * @property {() => void} fit
 * @property {() => void} pin
 * @property {() => void} all
 * @property {(x: number | null) => void} mark
 * @property {() => void} clear
 */

const ZOOM_PER_MS = 1.004;
const PAN_PER_MS = 1.2;
const CLICK_PIXELS = 4;
const WHEEL_ZOOM = 1.0015;
const HELD = new Set(["w", "a", "s", "d"]);

/** @param {HTMLCanvasElement} canvas @param {Actions} actions */
export function installInput(canvas, actions) {
  installPointer(canvas, actions);
  installWheel(canvas, actions);
  installKeys(canvas, actions);
}

/** Where the pointer is on the canvas, the middle while it is elsewhere. */
let pointerX = /** @type {number | null} */ (null);

/** @param {HTMLCanvasElement} canvas @param {Actions} actions */
function installPointer(canvas, actions) {
  canvas.addEventListener("pointerleave", () => {
    pointerX = null;
    actions.point(-1, -1);
  });
  canvas.addEventListener("pointermove", (event) => {
    pointerX = event.offsetX;
    if (!event.buttons) actions.point(event.offsetX, event.offsetY);
  });
  canvas.addEventListener("pointerdown", (down) => {
    if (down.button !== 0) return;
    canvas.setPointerCapture(down.pointerId);
    let [x, y] = [down.offsetX, down.offsetY];
    let moved = false;
    const move = (/** @type {PointerEvent} */ event) => {
      moved ||= Math.hypot(event.offsetX - down.offsetX, event.offsetY - down.offsetY) >= CLICK_PIXELS;
      if (!moved) return;
      actions.pan(x - event.offsetX);
      actions.scroll(y - event.offsetY);
      [x, y] = [event.offsetX, event.offsetY];
    };
    const up = (/** @type {PointerEvent} */ event) => {
      canvas.removeEventListener("pointermove", move);
      canvas.removeEventListener("pointercancel", up);
      canvas.removeEventListener("pointerup", up);
      if (event.type !== "pointercancel" && !moved) actions.select(event.offsetX, event.offsetY);
    };
    canvas.addEventListener("pointermove", move);
    canvas.addEventListener("pointerup", up);
    canvas.addEventListener("pointercancel", up);
  });
  canvas.addEventListener("dblclick", (event) => actions.open(event.offsetX, event.offsetY));
}

/** @param {HTMLCanvasElement} canvas @param {Actions} actions */
function installWheel(canvas, actions) {
  const act = (/** @type {WheelEvent} */ event) => {
    if (event.ctrlKey || event.metaKey) actions.zoom(WHEEL_ZOOM ** event.deltaY, event.offsetX);
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) actions.pan(event.deltaX || event.deltaY);
    else return;
    event.preventDefault();
  };
  canvas.addEventListener("wheel", act, { passive: false });
}

/** @param {HTMLCanvasElement} canvas @param {Actions} actions */
function installKeys(canvas, actions) {
  /** @type {Set<string>} */
  const held = new Set();
  let last = 0;
  let running = false;
  const run = (/** @type {number} */ now) => {
    running = held.size > 0;
    if (!running) return;
    const passed = Math.min(now - last, 50);
    last = now;
    const x = pointerX ?? canvas.clientWidth / 2;
    if (held.has("w")) actions.zoom(ZOOM_PER_MS ** -passed, x);
    if (held.has("s")) actions.zoom(ZOOM_PER_MS ** passed, x);
    if (held.has("a")) actions.pan(-PAN_PER_MS * passed);
    if (held.has("d")) actions.pan(PAN_PER_MS * passed);
    requestAnimationFrame(run);
  };
  addEventListener("keydown", (event) => {
    if (isTyping(event)) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (key.length === 1 && !keysAreOn()) return;
    if (HELD.has(key)) {
      // A press that is shorter than a frame must move, too.
      held.add(key);
      if (!running) requestAnimationFrame((now) => run((last = now - 16) + 16));
      running = true;
    } else if (!pressOnce(key, event, actions)) return;
    event.preventDefault();
  });
  addEventListener("keyup", (event) => setTimeout(() => held.delete(event.key.toLowerCase()), 20));
  addEventListener("blur", () => held.clear());
}

/** @param {string} key @param {KeyboardEvent} event @param {Actions} actions @returns {boolean} whether the key means something */
function pressOnce(key, event, actions) {
  const onPage = event.target === document.body || (event.target instanceof Element && event.target.closest(".timeline, #content") !== null);
  if (key === "f") actions.fit();
  else if (key === "0") actions.all();
  else if (key === "p") actions.pin();
  else if (key === "m") actions.mark(pointerX);
  else if (key === "Escape") actions.clear();
  else if (!onPage) return false;
  else if (key === "Enter") return event.target instanceof HTMLCanvasElement && actions.enter();
  else if (key === "ArrowLeft" || key === "ArrowRight") {
    const way = key === "ArrowRight" ? 1 : -1;
    if (!actions.step(0, way)) actions.pan(way * 80);
  } else if (key === "ArrowUp" || key === "ArrowDown") {
    const way = key === "ArrowDown" ? 1 : -1;
    if (!actions.step(way, 0)) actions.scroll(way * 40);
  } else return false;
  return true;
}
