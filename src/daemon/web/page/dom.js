// Elements, and tables that change in place: the focus and the place of a screen reader stay where they are.

/** Makes an element with attributes and children. Children are elements or texts. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** Sets a text if it differs, so that nothing is announced or laid out again without need. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Makes a card with a heading. */
export function card(title, ...children) {
  return make("section", { class: "card" }, make("h3", {}, title), ...children);
}

/**
 * Makes a table. A column has a title, a function from a row to its text, and perhaps `number`, `link` (a function from
 * a row to an address) and `state` (a function from a row to good, warn, bad or nothing). The first column heads rows.
 */
export function makeTable(caption, columns, key, empty) {
  const body = make("tbody");
  const heads = columns.map((column) => make("th", { scope: "col", class: column.number && "number" }, column.title));
  const table = make("table", { "aria-label": caption }, make("thead", {}, make("tr", {}, heads)), body);
  const note = make("p", { class: "empty" }, empty);
  const scroll = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, table, note);
  const present = new Map();

  const makeRow = () => {
    const cells = columns.map((column, index) => {
      const cell = make(index === 0 ? "th" : "td", { class: column.number && "number", scope: index === 0 && "row" });
      if (column.link) cell.append(make("a", {}));
      return cell;
    });
    return { element: make("tr", {}, cells), cells };
  };
  const fillRow = ({ cells }, row) => {
    columns.forEach((column, index) => {
      const cell = cells[index];
      const link = column.link && cell.firstElementChild;
      if (link) link.setAttribute("href", column.link(row));
      setText(link || cell, column.text(row));
      const state = column.state?.(row) ?? "";
      cell.className = [column.number ? "number" : "", state].filter(Boolean).join(" ");
    });
  };
  const update = (rows) => {
    const seen = new Set();
    rows.forEach((row, index) => {
      const id = key(row);
      seen.add(id);
      if (!present.has(id)) present.set(id, makeRow());
      const entry = present.get(id);
      fillRow(entry, row);
      if (body.children[index] !== entry.element) body.insertBefore(entry.element, body.children[index] ?? null);
    });
    for (const [id, entry] of present) {
      if (seen.has(id)) continue;
      entry.element.remove();
      present.delete(id);
    }
    table.hidden = rows.length === 0;
    note.hidden = rows.length !== 0;
  };
  update([]);
  return { element: make("div", {}, make("h3", {}, caption), scroll), update };
}
