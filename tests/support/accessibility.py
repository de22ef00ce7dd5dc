"""What a page must keep to so that everybody can read and use it, looked at in the browser."""

from playwright.async_api import Page

_LOOK = """() => {
  const found = [];
  const say = (what, element) => found.push(`${what}: ${element ? element.outerHTML.slice(0, 160) : ""}`);
  const shown = (element) => element.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true });
  const name = (element) => (element.getAttribute("aria-label") || element.textContent || element.title || "").trim();

  if (!document.documentElement.lang) say("no language");
  if (!document.title.trim()) say("no title");
  const headings = [...document.querySelectorAll("h1, h2, h3, h4")].filter(shown).map((each) => [Number(each.tagName[1]), each]);
  if (headings.filter(([level]) => level === 1).length !== 1) say("not one h1");
  headings.reduce((before, [level, each]) => { if (level > before + 1) say("a heading skips a level", each); return level; }, 0);
  for (const each of document.querySelectorAll("input:not([type=hidden]):not([type=submit]), select, textarea, meter"))
    if (!each.labels?.length && !each.getAttribute("aria-label") && !each.getAttribute("aria-labelledby")) say("no label", each);
  for (const each of document.querySelectorAll("a, button")) if (shown(each) && !name(each)) say("no name", each);
  for (const each of document.querySelectorAll("img:not([alt])")) say("no alternative text", each);
  for (const each of document.querySelectorAll("table")) if (!each.querySelector("th[scope]")) say("no heading of a column", each);
  for (const each of document.querySelectorAll("svg:not([aria-hidden])"))
    if (each.getAttribute("role") !== null && !each.getAttribute("aria-label") && !each.getAttribute("aria-labelledby") && !each.querySelector("title")) say("no name", each);
  // Two drawings on a page have the same definitions of arrow heads; nobody refers to those but the drawings.
  const ids = [...document.querySelectorAll("[id]:not(defs *)")].map((each) => each.id);
  for (const id of new Set(ids.filter((id, at) => ids.indexOf(id) !== at))) say(`the id ${id} twice`);

  const parse = (text) => { const [r, g, b, a] = text.match(/[\\d.]+/g).map(Number); return [r, g, b, a ?? 1]; };
  const over = ([r, g, b, a], [r2, g2, b2]) => [r * a + r2 * (1 - a), g * a + g2 * (1 - a), b * a + b2 * (1 - a), 1];
  const ground = (element) => {
    const layers = [];
    for (let each = element; each; each = each.parentElement) {
      const colour = parse(getComputedStyle(each).backgroundColor);
      layers.push(colour);
      if (colour[3] === 1) break;
    }
    return layers.reverse().reduce((below, above) => over(above, below), [255, 255, 255, 1]);
  };
  const light = (colour) => colour.slice(0, 3).map((part) => part / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const looked = new Set();
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || looked.has(element) || !shown(element) || element.closest("svg, option, datalist")) continue;
    looked.add(element);
    const style = getComputedStyle(element);
    const size = parseFloat(style.fontSize);
    const least = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
    const below = ground(element);
    const [darker, lighter] = [light(over(parse(style.color), below)), light(below)].sort((a, b) => a - b);
    const ratio = (lighter + 0.05) / (darker + 0.05);
    if (ratio < least) say(`contrast ${ratio.toFixed(2)}`, element);
  }
  if (looked.size < 5) say("hardly any text was looked at");
  return found;
}"""


async def barriers_on(page: Page) -> list[str]:
    """Return what keeps somebody out: missing labels, names and headings, and text with too little contrast."""
    found: list[str] = await page.evaluate(_LOOK)
    return found


async def scrolls_sideways(page: Page) -> list[str]:
    """Return what sticks out of the page; a box that scrolls by itself does not."""
    found: list[str] = await page.evaluate(
        """() => {
          const most = document.documentElement.clientWidth;
          if (document.documentElement.scrollWidth <= most) return [];
          return [...document.querySelectorAll("body *")]
            .filter((each) => each.getBoundingClientRect().right > most + 1)
            .map((each) => each.outerHTML.slice(0, 120));
        }"""
    )
    return found
