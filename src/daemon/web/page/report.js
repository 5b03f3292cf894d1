// Reports that are not in the snapshots: they are asked for while a view shows them.

/** Interval between two requests for a report, in milliseconds. */
const REPORT_INTERVAL = 5000;

/**
 * Polls a report while the view is shown. `take` gets the report, and `fail` the reason why the peer has none; without
 * a connection neither is called, as the header says that it is lost.
 */
export function polled(path, take, fail = () => {}) {
  let timer = null;
  const ask = async () => {
    let response;
    let body;
    try {
      response = await fetch(`/api/v1/${path}`);
      body = await response.text();
    } catch {
      return;
    }
    // The view may be closed meanwhile.
    if (timer === null) return;
    if (response.ok) take(JSON.parse(body));
    else fail(body.trim());
  };
  return {
    open: () => {
      timer = setInterval(ask, REPORT_INTERVAL);
      ask();
    },
    close: () => {
      clearInterval(timer);
      timer = null;
    },
  };
}

/** Returns the rows of numbers with their rates since the rows before. */
export function withRates(rows, before, seconds) {
  return rows.map((row) => {
    const key = `${row.epoch ?? ""} ${row.subject}`;
    const last = before.get(key);
    const rises = last && last.frame === row.frame && row.count >= last.count;
    before.set(key, row);
    return { ...row, key, rate: rises && seconds > 0 ? (row.count - last.count) / seconds : null };
  });
}
