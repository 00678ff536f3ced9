// Names and focus for what the theme adds to a page: tables that scroll, buttons beside code, lists of pages.
document$.subscribe(() => {
  document.querySelectorAll(".md-typeset__scrollwrap").forEach((box) => (box.tabIndex = 0));
  const named = new Set();
  document.querySelectorAll("nav[aria-labelledby]").forEach((nav) => {
    const by = nav.getAttribute("aria-labelledby");
    if (named.has(by)) nav.setAttribute("role", "presentation");
    named.add(by);
  });
  const name = () => document.querySelectorAll(".md-code__nav").forEach((nav) => nav.setAttribute("role", "presentation"));
  name();
  new MutationObserver(name).observe(document.querySelector("article"), { childList: true, subtree: true });
});
