"use strict";
// Replaces the facts every five seconds and leaves scrolling, selection and zoom alone.
const period = 5000;
const show = (stale) => {
  document.getElementById("stale").hidden = !stale;
  document.body.classList.toggle("stale", stale);
};
const refresh = async () => {
  if (document.hidden || document.getElementById("pause").checked) return;
  try {
    const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(period) });
    if (!answer.ok) throw new Error(answer.statusText);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    document.querySelector("main").replaceWith(page.querySelector("main"));
    show(false);
  } catch {
    show(true);
  }
};
setInterval(refresh, period);
document.addEventListener("visibilitychange", refresh);
