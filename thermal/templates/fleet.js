"use strict";
// Replaces the nodes every fifteen seconds; not while somebody types or walks through the links.
const period = 15000;
const refresh = async () => {
  const main = document.querySelector("main");
  if (document.hidden || main.contains(document.activeElement)) return;
  try {
    const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(period) });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.querySelector("main");
    if (fresh === null) throw new Error("no page of a guard");
    main.replaceWith(fresh);
    document.getElementById("stale").hidden = true;
  } catch {
    document.getElementById("stale").hidden = false;
  }
};
setInterval(refresh, period);
document.addEventListener("visibilitychange", refresh);
