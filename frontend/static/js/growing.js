// A run that records: single parts of its page follow it by themselves, so that what one looks at or types stays.

/** @returns {Promise<Document | null>} this page as it is now */
export async function fetchPage() {
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
  return answer.ok ? new DOMParser().parseFromString(await answer.text(), "text/html") : null;
}

/**
 * Put each part of a page that is marked `data-grows="a name"` in the place of the one that is shown. One that is empty
 * is still being prepared: what is shown stays.
 * @param {Document} fresh
 */
export function putGrowing(fresh) {
  for (const before of document.querySelectorAll("[data-grows]")) {
    const after = fresh.querySelector(`[data-grows="${before.getAttribute("data-grows")}"]`);
    if (after?.textContent?.trim() && !before.isEqualNode(after)) before.replaceWith(document.importNode(after, true));
  }
}
