// Numbers, times and names as people read them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

/** Returns a count, such as 12,345; a dash for none. */
export function count(value) {
  return typeof value === "number" ? whole.format(value) : "–";
}

/** Returns a loss: a number, or both bounds. Without an upper one nothing bounds it. */
export function bounds(value) {
  if (value === null || typeof value !== "object") return count(value);
  return value.max === null ? `at least ${count(value.min)}` : `${count(value.min)} to ${count(value.max)}`;
}

/** Returns a rate with at most one decimal. */
export function rate(value) {
  return typeof value === "number" ? short.format(value) : "–";
}

/** Returns a size in bytes, kB, MB or GB. */
export function bytes(value) {
  if (typeof value !== "number") return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${short.format(value)} ${units[unit]}`;
}

/** Returns a span of time in at most two units. */
export function span(millis) {
  if (typeof millis !== "number") return "–";
  const seconds = Math.floor(millis / 1000);
  const [days, hours, minutes] = [
    Math.floor(seconds / 86400),
    Math.floor(seconds / 3600) % 24,
    Math.floor(seconds / 60) % 60,
  ];
  if (days) return `${days} d ${hours} h`;
  if (hours) return `${hours} h ${minutes} min`;
  if (minutes) return `${minutes} min ${seconds % 60} s`;
  return `${short.format(millis / 1000)} s`;
}

/** Returns the time of day here of milliseconds since 1970, or of a text such as 2026-11-25T22:15:39Z. */
export function clock(time) {
  if (time === null || time === undefined) return "–";
  // A report has times of day without a date in UTC.
  if (/^\d\d:\d\d:\d\d/.test(time)) return `${String(time).slice(0, 8)} UTC`;
  const date = new Date(time);
  return Number.isNaN(date.getTime()) ? String(time) : date.toLocaleTimeString("en-GB");
}

/** Returns the time of day here of nanoseconds since 1970. */
export function clockOf(nanos) {
  return clock(typeof nanos === "number" ? nanos / 1e6 : null);
}

/** Returns the name of the peer of a row. */
export function name(row) {
  return row.publisher ?? row.user ?? row.epoch ?? "unknown";
}

/** Returns a number with its noun, which gets an s unless the number is 1. */
export function plural(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}
