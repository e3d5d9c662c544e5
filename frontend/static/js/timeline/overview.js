// The minimap: the whole run as a curve of how busy its lanes are, and the window into it.
/** @typedef {import("./state.js").State} State */

/** @param {HTMLCanvasElement} canvas @returns {CanvasRenderingContext2D} scaled to CSS pixels and cleared */
export function begin(canvas) {
  const ratio = devicePixelRatio || 1;
  const [width, height] = [Math.round(canvas.clientWidth * ratio), Math.round(canvas.clientHeight * ratio)];
  if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
  const g = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
  return g;
}

/**
 * How many lanes are busy in each of some columns of the whole trace.
 * @param {import("./tile.js").Tile} tile that holds everything @param {number} whole ns @param {number} columns
 * @returns {Float32Array} 0 to 1
 */
export function busyColumns(tile, whole, columns) {
  const busy = new Float32Array(columns);
  const scale = columns / whole;
  for (let i = 0; i < tile.start.length; i++) {
    const from = (tile.begin + tile.start[i] * tile.tick) * scale;
    const to = from + tile.length[i] * tile.tick * scale;
    const weight = tile.fill[i] / 255;
    for (let x = Math.max(0, Math.floor(from)); x < Math.min(columns, to); x++) {
      busy[x] += weight * (Math.min(to, x + 1) - Math.max(from, x));
    }
  }
  const most = busy.reduce((a, b) => Math.max(a, b), 1e-9);
  return busy.map((value) => value / most);
}

export class Minimap {
  /** @param {HTMLCanvasElement} canvas @param {(t0: number, t1: number) => void} show */
  constructor(canvas, show) {
    this.canvas = canvas;
    this.show = show;
    /** @type {Float32Array} */
    this.busy = new Float32Array(0);
    /** @type {unknown} */
    this.madeFrom = null;
    this.made = "";
    canvas.addEventListener("pointerdown", (event) => this.drag(event));
    this.state = /** @type {State | null} */ (null);
  }

  /** @param {State} state @param {import("./tile.js").Tile | undefined} tile @param {number} shift */
  draw(state, tile, shift) {
    const made = `${shift}/${state.whole}`;
    this.state = state;
    const g = begin(this.canvas);
    const [width, height] = [this.canvas.clientWidth, this.canvas.clientHeight];
    if (tile && (this.madeFrom !== tile || this.made !== made || this.busy.length !== width)) {
      Object.assign(this, { madeFrom: tile, made });
      this.busy = busyColumns({ ...tile, begin: tile.begin + shift }, state.whole, width);
    }
    const [red, green, blue] = state.palette.classes.host;
    g.fillStyle = `rgb(${red} ${green} ${blue} / 55%)`;
    this.busy.forEach((value, x) => g.fillRect(x, height - value * (height - 4), 1, value * (height - 4)));
    const x0 = Math.max(0, (state.span.t0 / state.whole) * width);
    const x1 = Math.min(width, Math.max((state.span.t1 / state.whole) * width, x0 + 2));
    g.fillStyle = `${state.palette.accent}26`;
    g.fillRect(x0, 0, x1 - x0, height);
    g.strokeStyle = state.palette.accent;
    g.lineWidth = 1.5;
    g.strokeRect(x0 + 0.75, 0.75, Math.max(x1 - x0 - 1.5, 1), height - 1.5);
  }

  /** Drag inside of the window moves it; elsewhere it draws a new one. @param {PointerEvent} down */
  drag(down) {
    const state = this.state;
    if (!state) return;
    const scale = state.whole / this.canvas.clientWidth;
    const { t0, t1 } = state.span;
    const at = down.offsetX * scale;
    const inside = at > t0 && at < t1 && t1 - t0 < 0.95 * state.whole;
    this.canvas.setPointerCapture(down.pointerId);
    const move = (/** @type {PointerEvent} */ event) => {
      const now = event.offsetX * scale;
      if (inside) this.show(t0 + now - at, t1 + now - at);
      else if (Math.abs(event.offsetX - down.offsetX) > 3) this.show(Math.min(at, now), Math.max(at, now));
    };
    const up = (/** @type {PointerEvent} */ event) => {
      this.canvas.removeEventListener("pointermove", move);
      if (!inside && Math.abs(event.offsetX - down.offsetX) <= 3) this.show(at - (t1 - t0) / 2, at + (t1 - t0) / 2);
    };
    this.canvas.addEventListener("pointermove", move);
    this.canvas.addEventListener("pointerup", up, { once: true });
  }
}
