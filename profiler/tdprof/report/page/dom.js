// Small words for making elements. Text reaches the page as text nodes and attribute values only, never as markup.

/** @returns {any} an element of page.html, whose kind is known where it is used */
const byId = (id) => document.getElementById(id);

function el(name, properties = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "class") node.className = value;
    else if (key === "style") for (const [rule, text] of Object.entries(value)) node.style.setProperty(rule, text);
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

const button = (content, onclick, properties = {}) => el("button", { type: "button", onclick, ...properties }, content);
const hiddenText = (text) => el("span", { class: "hidden" }, text);

// A value with as many decimals as its doubt leaves meaning to: two significant digits of the half width, and no more
// than four of the value.
function showValue(value, halfWidth, mostDecimals = 6) {
  if (Number.isNaN(value)) return { value: "unknown", halfWidth: "", decimals: 0 };
  const place = (x) => Math.floor(Math.log10(Math.abs(x)));
  const decimals = Math.max(0, Math.min(mostDecimals, value ? 3 - place(value) : 4, halfWidth > 0 ? 1 - place(halfWidth) : value ? 4 : 0));
  const least = 10 ** -decimals;
  const isHidden = halfWidth > 0 && halfWidth < least / 2;
  const doubt = isHidden ? `<${least.toFixed(decimals)}` : halfWidth > 0 ? halfWidth.toFixed(decimals) : "";
  return { value: value.toFixed(decimals).replace(/^-(0\.?0*)$/, "$1"), halfWidth: doubt, decimals };
}

// A metric as the report writes it, its value and what stands behind: "5.3", " ± 0.4"; of a percentage whose interval
// 0 or 100 cuts "68", " (35-100)"; "< 0.3" where no sample showed the event.
function showMetric({ value, halfWidth, units, samples }) {
  const shown = showValue(value, halfWidth);
  if (value === 0 && halfWidth > 0 && !samples) return { value: `< ${shown.halfWidth}`, doubt: "" };
  if (Number.isNaN(halfWidth)) return { value: shown.value, doubt: Number.isNaN(value) ? "" : " ± unknown" };
  if (units.startsWith("percent")) {
    const within = (x) => Math.min(100, Math.max(0, x));
    const [low, high] = [within(value - halfWidth), within(value + halfWidth)];
    // An interval that misses the whole altogether says that the counts contradict each other: it is left as it is.
    if (low < high && (value - halfWidth < low || value + halfWidth > high)) {
      const text = (x) => x.toFixed(shown.decimals);
      return { value: text(within(value)), doubt: ` (${text(low)}-${text(high)})` };
    }
  }
  return { value: shown.value, doubt: shown.halfWidth ? ` ± ${shown.halfWidth}` : "" };
}

// As in the report: percent, in points.
const showShareValue = (share, halfWidth) => showValue(100 * share, 100 * halfWidth, 2);
const percentOf = (share) => `${(100 * share).toFixed(3)}%`;

// A share for people: one decimal, and never 0.0 % of something that is there.
function showShare(share) {
  if (Number.isNaN(share)) return "unknown";
  const percent = 100 * share;
  if (percent === 0) return "0 %";
  return percent < 0.05 ? "<0.1 %" : `${percent.toFixed(1)} %`;
}

function showAmount(amount, unit) {
  /** @type {[number, string][]} */
  const steps =
    unit === "nanoseconds"
      ? [[1e9, " s"], [1e6, " ms"], [1e3, " µs"], [1, " ns"]]
      : unit === "bytes"
        ? [[2 ** 40, " TiB"], [2 ** 30, " GiB"], [2 ** 20, " MiB"], [2 ** 10, " KiB"], [1, " B"]]
        : [[1e12, " T"], [1e9, " G"], [1e6, " M"], [1, ""]];
  const [scale, suffix] = steps.find((step) => amount >= step[0]) ?? steps[steps.length - 1];
  if (scale === 1) return amount.toLocaleString("en") + suffix;
  const scaled = amount / scale;
  return scaled.toFixed(Math.max(0, 4 - String(Math.floor(scaled)).length)) + suffix;
}

const plural = (count, noun, ending = "s") => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : ending}`;
// The last part of a path; brackets such as [kernel] stay.
const baseName = (path) => (path.startsWith("[") ? path : path.slice(path.lastIndexOf("/") + 1));
