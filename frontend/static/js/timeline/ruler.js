// The ruler above the lanes: round moments, marks, where the pointer is; dragging over it zooms to that stretch.
import { begin } from "./overview.js";
import { duration, moment, rulerTicks } from "./text.js";

/** @typedef {import("./state.js").State} State */
/** @typedef {{t0: number, t1: number}} Span */

const TICK_PIXELS = 110;
const DRAG_PIXELS = 4;
const WHEEL_ZOOM = 1.0015;
const FONT = '11px system-ui, -apple-system, "Segoe UI", sans-serif';

/** @param {HTMLCanvasElement} canvas @param {State} state @param {Span | null} chosen what is dragged over */
export function drawRuler(canvas, state, chosen) {
  const g = begin(canvas);
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  const { t0, t1 } = state.span;
  const xOf = (/** @type {number} */ at) => ((at - t0) / (t1 - t0)) * width;
  const { step, ticks } = rulerTicks(t0, t1, Math.max(width / TICK_PIXELS, 2));
  g.font = FONT;
  for (const tick of ticks) {
    const x = Math.round(xOf(tick)) + 0.5;
    g.fillStyle = state.palette.line;
    g.fillRect(x, height - 7, 1, 7);
    g.fillStyle = state.palette.muted;
    g.fillText(moment(tick, step), x + 4, height - 8);
  }
  g.fillStyle = state.palette.accent;
  state.marks.forEach((mark, i) => {
    const x = xOf(mark);
    g.beginPath();
    g.moveTo(x - 5, 0);
    g.lineTo(x + 5, 0);
    g.lineTo(x, 8);
    g.fill();
    if (i) writeOver(g, state, `+${duration(mark - state.marks[i - 1])}`, x + 7, width);
  });
  if (chosen) {
    const [from, to] = [xOf(chosen.t0), xOf(chosen.t1)];
    g.fillStyle = `${state.palette.accent}33`;
    g.fillRect(from, 0, to - from, height);
    writeOver(g, state, duration(chosen.t1 - chosen.t0), from + 4, width);
  } else if (state.cursor !== null) {
    const x = xOf(state.cursor);
    g.fillStyle = state.palette.muted;
    g.fillRect(Math.round(x), 0, 1, height);
    writeOver(g, state, moment(state.cursor, (t1 - t0) / width), x + 5, width);
  }
}

/** Write on a ground of its own, so that it can be read over ticks. @param {CanvasRenderingContext2D} g @param {State} state @param {string} text @param {number} x @param {number} width */
function writeOver(g, state, text, x, width) {
  const wide = g.measureText(text).width;
  const left = Math.min(x, width - wide - 4);
  g.fillStyle = state.palette.raised;
  g.fillRect(left - 3, 0, wide + 6, 13);
  g.fillStyle = state.palette.text;
  g.fillText(text, left, 10);
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {{timeAt: (x: number) => number, choose: (span: Span | null, done: boolean) => void,
 *   zoom: (factor: number, x: number) => void}} actions
 */
export function installRuler(canvas, actions) {
  canvas.addEventListener("wheel", (event) => {
    actions.zoom(WHEEL_ZOOM ** event.deltaY, event.offsetX);
    event.preventDefault();
  }, { passive: false });
  canvas.addEventListener("pointerdown", (down) => {
    if (down.button !== 0) return;
    canvas.setPointerCapture(down.pointerId);
    const [from, at] = [actions.timeAt(down.offsetX), down.offsetX];
    /** @param {PointerEvent} event @returns {Span | null} */
    const spanTo = (event) => {
      const to = actions.timeAt(event.offsetX);
      return Math.abs(event.offsetX - at) < DRAG_PIXELS ? null : { t0: Math.min(from, to), t1: Math.max(from, to) };
    };
    const move = (/** @type {PointerEvent} */ event) => actions.choose(spanTo(event), false);
    const end = (/** @type {PointerEvent} */ event) => {
      canvas.removeEventListener("pointermove", move);
      canvas.removeEventListener("pointerup", end);
      canvas.removeEventListener("pointercancel", end);
      actions.choose(event.type === "pointerup" ? spanTo(event) : null, true);
    };
    canvas.addEventListener("pointermove", move);
    canvas.addEventListener("pointerup", end);
    canvas.addEventListener("pointercancel", end);
  });
}
