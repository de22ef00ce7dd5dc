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

// <main data-stream="…">: at every event of the stream the elements with data-live are taken anew from this page.
function keepFresh(address) {
  const mark = document.getElementById("live");
  let timer = null;
  const refresh = async () => {
    timer = null;
    const fresh = await pageAt(location.href);
    for (const old of document.querySelectorAll("[data-live]")) {
      const now = fresh.getElementById(old.id);
      if (!now || now.innerHTML === old.innerHTML || old.contains(document.activeElement)) continue;
      const open = [...old.querySelectorAll("details[id][open]")].map((each) => each.id);
      const inner = old.querySelector(".scroll, .graph");
      const [left, top] = inner ? [inner.scrollLeft, inner.scrollTop] : [0, 0];
      old.replaceChildren(...document.importNode(now, true).childNodes);
      for (const id of open) document.getElementById(id)?.setAttribute("open", "");
      old.querySelector(".scroll, .graph")?.scrollTo(left, top);
    }
  };
  const stream = new EventSource(address);
  stream.onopen = () => { mark.hidden = false; };
  stream.onerror = () => { mark.hidden = true; };
  const soon = () => { timer ??= setTimeout(() => refresh().catch(() => {}), 400); };
  for (const name of (document.querySelector("main").dataset.events || "message").split(" ")) {
    stream.addEventListener(name, soon);
  }
  addEventListener("pagehide", () => stream.close());
}

const stream = document.querySelector("main").dataset.stream;
if (stream) keepFresh(stream);
