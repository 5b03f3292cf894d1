// Plots over time, drawn by uPlot. Each has a text for those who do not see it.

import { make, setText } from "/dom.js";
import { clock } from "/format.js";

const LINES = ["--s1", "--s2", "--s3", "--s4", "--s5", "--s6"];
const DASHES = [[], [8, 4], [3, 3], [12, 3, 3, 3], [2, 5], [16, 6]];
const HEIGHT = 190;
/** Shortest span of time that a plot shows, in seconds. */
const SPAN_MIN = 120;

function colour(variable) {
  return getComputedStyle(document.documentElement).getPropertyValue(variable).trim();
}

/**
 * Makes a plot. `lines` returns a list of lines, each with a label and values; `describe` returns the text.
 */
export function makePlot(title, { lines, format, describe }) {
  const area = make("div", { class: "plot", role: "img" });
  const text = make("p", { class: "quiet" });
  let plot = null;
  let shown = "";
  let times = [];

  const range = () => {
    const last = times.at(-1) ?? Date.now() / 1000;
    return [Math.min(times[0] ?? last, last - SPAN_MIN), last];
  };

  const build = (current) => {
    plot?.destroy();
    const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
    const series = current.map(({ label }, index) => ({
      label,
      stroke: colour(LINES[index % LINES.length]),
      dash: DASHES[index % DASHES.length],
      width: 2,
      points: { show: false },
      value: (_, value) => (value === null ? "–" : format(value)),
    }));
    const time = {
      label: "Time",
      value: (_, value) => (value === null ? "–" : clock(value * 1000)),
    };
    plot = new uPlot(
      {
        width: Math.max(area.clientWidth, 200),
        height: HEIGHT,
        series: [time, ...series],
        axes: [
          { ...axis, values: (_, times) => times.map((time) => clock(time * 1000)), space: 80 },
          { ...axis, size: 60, values: (_, values) => values.map(format) },
        ],
        scales: {
          x: { range },
          y: { range: (_, min, max) => [0, Math.max(max * 1.1, 1)] },
        },
        cursor: { drag: { x: false, y: false } },
      },
      [[], ...current.map(() => [])],
      area,
    );
  };
  const update = (state) => {
    times = state.times;
    const current = lines(state);
    const labels = current.map(({ label }) => label).join("\n");
    if (!plot || labels !== shown) {
      shown = labels;
      build(current);
    }
    plot.setData([times, ...current.map(({ values }) => values)]);
    const description = describe(state);
    area.setAttribute("aria-label", `${title}: ${description}`);
    setText(text, description);
  };
  new ResizeObserver(() => plot?.setSize({ width: Math.max(area.clientWidth, 200), height: HEIGHT })).observe(area);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => (shown = ""));
  return { element: make("section", { class: "card" }, make("h3", {}, title), area, text), update };
}
