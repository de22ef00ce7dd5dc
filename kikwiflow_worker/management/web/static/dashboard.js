// Every page works without this file: it only opens confirmations as dialogs and keeps live parts fresh.
"use strict";

async function pageAt(address) {
  const response = await fetch(address, { headers: { Accept: "text/html" } });
  return new DOMParser().parseFromString(await response.text(), "text/html");
}

// A link with data-dialog leads to a page with a form that asks before it acts.
async function openDialog(link) {
  const form = (await pageAt(link.href)).querySelector("form.confirmation");
  if (!form) {
    location.assign(link.href);
    return;
  }
  const dialog = document.createElement("dialog");
  const own = document.importNode(form, true);
  own.action = form.getAttribute("action") ? own.action : link.href;
  dialog.setAttribute("aria-labelledby", "confirmation-title");
  dialog.append(own);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog || event.target.closest("[data-close]")) {
      event.preventDefault();
      dialog.close();
    }
  });
  document.body.append(dialog);
  dialog.showModal();
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-dialog]");
  if (!link || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  openDialog(link).catch(() => location.assign(link.href));
});

function holdsFocus(element) {
  return element !== document.activeElement && element.contains(document.activeElement);
}

// <main data-stream="…">: at every event of the stream the elements with data-live are taken anew from this page.
function keepFresh(address) {
  const mark = document.getElementById("live");
  let timer = null;
  const refresh = async () => {
    timer = null;
    const fresh = await pageAt(location.href);
    for (const old of document.querySelectorAll("[data-live]")) {
      const now = fresh.getElementById(old.id);
      if (!now || now.innerHTML === old.innerHTML || holdsFocus(old)) continue;
      const open = [...old.querySelectorAll("details[id][open]")].map((each) => each.id);
      const table = old.querySelector(".scroll");
      const left = table ? table.scrollLeft : 0;
      old.replaceChildren(...document.importNode(now, true).childNodes);
      for (const id of open) document.getElementById(id)?.setAttribute("open", "");
      old.querySelector(".scroll")?.scrollTo(left, 0);
    }
    document.dispatchEvent(new Event("refreshed"));
  };
  const soon = () => { timer ??= setTimeout(() => refresh().catch(() => {}), 300); };
  let stream = null;
  const follow = () => {
    stream = new EventSource(address);
    stream.onopen = () => { mark.hidden = false; };
    stream.onerror = () => { mark.hidden = true; };
    stream.addEventListener("state", soon);
    stream.addEventListener("end", () => {
      stream.close();
      mark.hidden = true;
      soon();
    });
  };
  // Nobody looks at a hidden tab: it costs the server nothing.
  document.addEventListener("visibilitychange", () => {
    stream.close();
    if (document.visibilityState === "visible") follow();
    else mark.hidden = true;
  });
  addEventListener("pagehide", () => stream.close());
  follow();
}

// A graph can be made smaller and larger, and begins where something stands.
function equip(graph) {
  const picture = graph.querySelector("svg");
  const bar = document.createElement("div");
  bar.className = "zoom";
  let scale = 1;
  const natural = picture.viewBox.baseVal.width;
  const resize = (to) => {
    scale = Math.min(2, Math.max(0.1, to));
    const now = graph.querySelector("svg");
    now.classList.remove("fits");
    now.setAttribute("width", natural * scale);
    now.setAttribute("height", now.viewBox.baseVal.height * scale);
  };
  const add = (label, said, act) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = label;
    button.setAttribute("aria-label", said);
    button.addEventListener("click", act);
    bar.append(button);
  };
  add("−", "Smaller", () => resize(scale / 1.25));
  add("Fit", "Fit the window", () => resize((graph.clientWidth - 16) / natural));
  add("+", "Larger", () => resize(scale * 1.25));
  const title = graph.parentElement.querySelector("h2");
  const row = document.createElement("div");
  row.className = "bar";
  title?.replaceWith(row);
  if (title) row.append(title, bar);
  const fit = (graph.clientWidth - 16) / natural;
  if (fit < 1 && graph.clientWidth > 700) resize(Math.max(0.7, fit));
  document.addEventListener("refreshed", () => { if (scale !== 1) resize(scale); });
  const here = picture.querySelector(".failed, .stands");
  if (!here) return;
  const [box, frame] = [here.getBoundingClientRect(), graph.getBoundingClientRect()];
  graph.scrollTo(
    box.left - frame.left - frame.width / 2 + box.width / 2,
    box.top - frame.top - frame.height / 2 + box.height / 2,
  );
}

document.querySelectorAll(".graph").forEach(equip);

const stream = document.querySelector("main").dataset.stream;
if (stream) keepFresh(stream);
