// A run that records: single parts of its page follow it by themselves, so that what one looks at or types stays.

/** Put each part that is marked `data-grows="a name"` as the page has it now in the place of the one that is shown. */
export async function renewGrowing() {
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const before of document.querySelectorAll("[data-grows]")) {
    const after = fresh.querySelector(`[data-grows="${before.getAttribute("data-grows")}"]`);
    if (after && !before.isEqualNode(after)) before.replaceWith(document.importNode(after, true));
  }
}
